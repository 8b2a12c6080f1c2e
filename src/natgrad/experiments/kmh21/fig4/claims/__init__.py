"""Claims of Figure 4: the paper's statements, including those that our numbers refute."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from natgrad.experiments.kmh21._separable import claims as shared
from natgrad.experiments.kmh21._separable.curves import NGD, Table
from natgrad.experiments.kmh21.fig4.claims._departures import departures
from natgrad.experiments.kmh21.fig4.claims._explanations import beyond, cost, explanations
from natgrad.experiments.kmh21.fig4.config import Fig4
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds

__all__ = ["claims", "departures"]

_BOTH = ("quick", "paper")
_WHERE = "[KMH21] Figure 4, left"
_FEW = {">=": "enough", "<": "not enough"}


def claims(config: Fig4, arrays: Arrays) -> Sequence[Claim]:
    """Return all claims."""
    return [
        *_generalization(config, arrays),
        *shared.natural(config, arrays, where=_WHERE, dip=0.56),
        *_natural(config, arrays),
        _population(config, arrays),
        *_structure(config, arrays),
        _vertex(config, arrays),
        *shared.vertex(config, arrays, arrays.coordinates["path_n"]),
        *_paper(config, arrays),
        shared.population_refuted(config, arrays),
        *explanations(config, arrays),
        *beyond(config, arrays),
        *cost(config, arrays),
    ]


def _generalization(config: Fig4, arrays: Arrays) -> list[Claim]:
    accuracy, few = Table(arrays), config.few
    bounds: list[tuple[str, Any, float]] = [
        ("EGD L=2", ">=", 0.85),
        ("EGD L=3", ">=", 0.92),
        ("EGD L=1", "<", 0.70),
        (NGD, "<", 0.70),
    ]
    return [
        Claim(
            id=f"few-data-{name.lower().replace(' ', '-').replace('=', '')}",
            statement=f"N = {few} < D is {_FEW[relation]} for {name} to generalize (accuracy)",
            source=_WHERE + ": “up to 90 %”",
            **over_seeds(accuracy(name, few)),
            relation=relation,
            bound=bound,
            presets=_BOTH,
        )
        for name, relation, bound in bounds
    ]


def _natural(config: Fig4, arrays: Arrays) -> list[Claim]:
    accuracy = Table(arrays)
    below = [i for i, n in enumerate(config.observations) if n < config.dim]
    ols = arrays["ols_accuracy"][below]
    measured = arrays["accuracy"][arrays.coordinates["method"].index(NGD)][below]
    egd = [f"EGD L={depth}" for depth in config.depths]
    return [
        Claim(
            id="ngd-is-ols-accuracy",
            statement="N < D: NGD and the shortest interpolant are equally accurate (largest "
            "difference)",
            source="[KMH21] Theorem 3 and the text after it",
            **over_seeds(np.abs(measured - ols).max(axis=0), "max"),
            relation="<=",
            bound=0.002,
            presets=("smoke", *_BOTH),
        ),
        Claim(
            id="ngd-below-egd",
            statement=f"N ≥ {config.few}: NGD with the sample Fisher is worse than EGD at every "
            "depth (accuracy minus that of EGD, largest over depths and N)",
            source=_WHERE + ": “worse than EGD even when N ≥ D”",
            **over_seeds(accuracy.best_gap(NGD, egd, config.few)),
            relation="<",
            bound=0.0,
            presets=_BOTH,
        ),
    ]


def _population(config: Fig4, arrays: Arrays) -> Claim:
    return Claim(
        id="population-sample",
        statement=f"N = D, t = 1: a sample of {config.sample} inputs can stand for the population "
        "(absolute difference in accuracy from its closed form; it falls like D over the sample)",
        source="[KMH21] Figure 4: “a much larger set of samples”",
        value=abs(float(np.diff(arrays["sample_accuracy"])[0])),
        relation="<=",
        bound=0.02,
        presets=_BOTH,
    )


def _structure(config: Fig4, arrays: Arrays) -> list[Claim]:
    share, most = Table(arrays, "share"), max(config.observations)
    two, one, natural = (share(name, most) for name in ("EGD L=2", "EGD L=1", NGD))
    return [
        Claim(
            id="share-l2",
            statement=f"N = {most}: EGD L = 2 finds the sparse structure (share of ‖β‖₂ on the "
            "true coordinates)",
            source="[KMH21] Figure 4, right",
            **over_seeds(two),
            relation=">=",
            bound=0.95,
            presets=_BOTH,
        ),
        Claim(
            id="share-order",
            statement="the share on the true coordinates falls from L = 2 to L = 1 to NGD "
            "(smaller of the two differences)",
            source="[KMH21] Figure 4, right",
            **over_seeds(np.minimum(two - one, one - natural)),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="paper-structure",
            statement=f"“NGD fails to learn the sparse structure”, N = {most} (share of true "
            f"features among the {config.ones} largest |β| of NGD, smallest over data sets)",
            source="[KMH21] Figure 4, right; §3.1: “unable to identify”",
            **over_seeds(Table(arrays, "named")(NGD, most), "min"),
            relation="<",
            bound=1.0,
            presets=_BOTH,
            expected=False,
        ),
    ]


def _vertex(config: Fig4, arrays: Arrays) -> Claim:
    return Claim(
        id="ngd-solves-flow",
        statement=f"N > D, t = {config.until:g}: NGD as drawn solves the equation of the flow "
        "(largest residual of the vertex form, or of the followed flow where that form is not yet "
        "accurate)",
        source="natgrad",
        **over_seeds(np.nanmax(arrays["residual"], axis=0), "max"),
        relation="<=",
        bound=1e-4,
        presets=_BOTH,
    )


def _paper(config: Fig4, arrays: Arrays) -> list[Claim]:
    """Return the paper's statements that our numbers refute."""
    accuracy, few = Table(arrays), config.few
    return [
        Claim(
            id="paper-chance",
            statement=f"“NGD performs at chance level when N < D” (accuracy at N = {few})",
            source="[KMH21] Figure 4, caption",
            **over_seeds(accuracy(NGD, few)),
            relation="<=",
            bound=0.55,
            presets=_BOTH,
            expected=False,
        ),
        Claim(
            id="paper-depth-4",
            statement="“L = 4 … on par with the shallow solution” (accuracy of L = 4 minus L = 1 "
            f"at N = {few})",
            source="[KMH21] §3.1",
            **over_seeds(accuracy("EGD L=4", few) - accuracy("EGD L=1", few)),
            relation="<=",
            bound=0.05,
            presets=_BOTH,
            expected=False,
        ),
    ]
