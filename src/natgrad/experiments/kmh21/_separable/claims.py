"""Claims about the natural gradient that Figures 4 and 6 share."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.kmh21._separable.curves import NGD, POPULATION, Sizes, Table
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds

BOTH = ("quick", "paper")
ALL = ("smoke", *BOTH)


def natural(config: Sizes, arrays: Arrays, *, where: str, dip: float) -> list[Claim]:
    """Claim that NGD is least squares below D and dips at N = D, and the population Fisher helps.

    Args:
        config: The figure's config.
        arrays: Its arrays.
        where: The panel of accuracies.
        dip: Accuracy at N = D that NGD stays below.
    """
    accuracy = Table(arrays)
    below = [i for i, n in enumerate(config.observations) if n < config.dim]
    return [
        Claim(
            id="ngd-is-ols",
            statement="N < D: NGD is the shortest least-squares interpolant (smallest cosine)",
            source="[KMH21] Theorem 3 and the text after it",
            **over_seeds(arrays["ols_cosine"][below].min(axis=0), "min"),
            relation=">=",
            bound=0.9999,
            presets=ALL,
        ),
        Claim(
            id="ngd-dip",
            statement="N = D: NGD with the sample Fisher dips (accuracy)",
            source=where,
            **over_seeds(accuracy(NGD, config.dim)),
            relation="<",
            bound=dip,
            presets=BOTH,
        ),
        Claim(
            id="population-lifts",
            statement="N = D: the population Fisher removes the dip (gain in accuracy)",
            source="[KMH21] §3.1: “remedied”",
            **over_seeds(accuracy(POPULATION, config.dim) - accuracy(NGD, config.dim)),
            relation=">=",
            bound=0.15,
            presets=BOTH,
        ),
        Claim(
            id="logits",
            statement=f"N = {config.few}, t = 10⁴: the logits of NGD satisfy sₙ(t)/t → yₙ (largest "
            "difference)",
            source="[KMH21] Theorem 4; Figure 4, middle",
            **over_seeds(arrays["logit_error"], "max"),
            relation="<=",
            bound=0.01,
            presets=ALL,
        ),
    ]


def vertex(config: Sizes, arrays: Arrays, observations: Sequence[int]) -> list[Claim]:
    """Claim that for N > D the flow ends at the vertex of a linear program."""
    names = ", ".join(map(str, observations))
    return [
        Claim(
            id="flow-is-vertex",
            statement=f"N = {names} > D: at t = {config.until:g} NGD points to the vertex of the "
            "linear program (smallest cosine over seeds)",
            source="natgrad",
            **over_seeds(arrays["path_cosine"].min(axis=0), "min"),
            relation=">=",
            bound=0.9999,
            presets=ALL,
        ),
        *(
            [
                Claim(
                    id="flow-basis-now",
                    statement=f"N > D: already at t = {config.until:g} the D smallest margins of "
                    "NGD are those of the linear program's basis (share of seeds)",
                    source="natgrad",
                    **over_seeds(arrays["path_basis"].min(axis=0)),
                    relation=">=",
                    bound=1.0,
                    presets=("paper",),
                    expected=False,  # a nearly degenerate program takes longer
                )
            ]
            if "path_basis" in arrays
            else []
        ),
        Claim(
            id="flow-basis",
            statement=f"N > D: at t = {1000 * config.until:g} the D smallest margins of NGD are "
            "those of the linear program's basis (share of seeds)",
            source="natgrad",
            **over_seeds(arrays["later_basis"].min(axis=0)),
            relation=">=",
            bound=1.0,
            presets=ALL,
        ),
    ]


def population_refuted(config: Sizes, arrays: Arrays) -> Claim:
    """Return the paper's claim about the population Fisher, which our numbers refute."""
    accuracy = Table(arrays)
    gaps = [accuracy(POPULATION, n) - accuracy("EGD L=1", n) for n in config.observations]
    return Claim(
        id="paper-population",
        statement="“population Fisher … worse than EGD” (accuracy of that NGD minus EGD L = 1, "
        "mean over N)",
        source="[KMH21] Figure 4, caption",
        **over_seeds(np.stack(gaps).mean(axis=0)),
        relation="<",
        bound=0.0,
        presets=BOTH,
        expected=False,
    )
