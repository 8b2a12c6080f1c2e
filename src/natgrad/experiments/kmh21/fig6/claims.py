"""Claims of Figure 6, and our choices."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.kmh21._separable import claims as shared
from natgrad.experiments.kmh21._separable.curves import POPULATION, Table
from natgrad.experiments.kmh21.fig6.config import Fig6
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds

_BOTH = ("quick", "paper")
_WHERE = "[KMH21] Figure 6"


def claims(config: Fig6, arrays: Arrays) -> Sequence[Claim]:
    """Return the claims about the curves."""
    return [
        *_depth(config, arrays),
        *shared.natural(config, arrays, where=_WHERE, dip=0.58),
        _sample(config, arrays),
        *shared.vertex(config, arrays, arrays.coordinates["path_n"]),
        shared.population_refuted(config, arrays),
    ]


def _depth(config: Fig6, arrays: Arrays) -> list[Claim]:
    accuracy, many = Table(arrays), config.many
    shallow, deepest = accuracy("EGD L=1", many), accuracy("EGD L=5", many)
    return [
        *(
            Claim(
                id=f"depth-{depth}",
                statement=f"N = {many}: EGD L = {depth} is better than L = 1 (difference in "
                "accuracy)",
                source=_WHERE,
                **over_seeds(accuracy(f"EGD L={depth}", many) - shallow),
                relation=">=",
                bound=0.05,
                presets=_BOTH,
            )
            for depth in (2, 3)
        ),
        Claim(
            id="depth-4",
            statement=f"N = {many}: “L = 4 would do at least as well as L = 1” (difference in "
            "accuracy)",
            source=_WHERE + ", caption: an expectation",
            **over_seeds(accuracy("EGD L=4", many) - shallow),
            relation=">=",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="paper-depth-5",
            statement=f"N = {many}: “the 5-layer network performs poorly” (accuracy of L = 5 minus "
            "L = 1)",
            source=_WHERE + ", caption",
            **over_seeds(deepest - shallow),
            relation="<=",
            bound=0.0,
            presets=_BOTH,
            expected=False,
        ),
        *_gaussian(config, arrays),
    ]


def _gaussian(config: Fig6, arrays: Arrays) -> list[Claim]:
    """Return the claims about L = 5 from Gaussian factors, which explain the paper's “poorly”."""
    names, kept = arrays.coordinates["method"], slice(config.gaussian_seeds)
    shallow, deepest = (
        arrays["accuracy"][names.index(f"EGD L={depth}"), :, kept] for depth in (1, 5)
    )
    found, observations = arrays["gaussian"], np.array(config.observations)
    many, most = config.observations.index(config.many), int(observations.argmax())
    return [
        Claim(
            id="gaussian-depth-5",
            statement=f"N = {config.many}: L = 5 is worse from Gaussian factors (loss of accuracy, "
            "smallest over scales and data sets)",
            source="natgrad, explains “poorly”",
            **over_seeds((deepest - found)[:, many].min(axis=0), "min"),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-poor",
            statement=f"N = {config.many}: L = 5 from Gaussian factors is often below L = 1 (share "
            "of data sets, smallest over scales)",
            source="natgrad, explains “poorly”",
            **over_seeds((found[:, many] < shallow[many]).mean(axis=1), "min"),
            relation=">=",
            bound=0.5,
            presets=_BOTH,
        ),
        Claim(
            id="gaussian-many",
            statement=f"N = {observations[most]}: with many samples L = 5 from Gaussian factors is "
            "better than L = 1 (difference in accuracy, smallest over scales and data sets)",
            source="natgrad",
            **over_seeds((found[:, most] - shallow[most]).min(axis=0), "min"),
            relation=">",
            bound=0.0,
            presets=_BOTH,
        ),
    ]


def _sample(config: Fig6, arrays: Arrays) -> Claim:
    sample = np.abs(arrays["sample_accuracy"] - arrays["closed_accuracy"])
    return Claim(
        id="population-sample",
        statement=f"a sample of {config.sample} inputs can stand for the population (absolute "
        "difference in accuracy from its closed form, mean over N)",
        source="[KMH21] Figure 4: “a much larger set of samples”",
        **over_seeds(sample.mean(axis=0)),
        relation="<=",
        bound=0.01,
        presets=_BOTH,
    )


def departures(config: Fig6, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and where our numbers differ from the paper's text."""
    accuracy, many = Table(arrays), config.many
    at, most = config.observations.index(many), max(config.observations)
    gaussian = 100 * arrays["gaussian"]

    def mean(method: str) -> str:
        return f"{100 * accuracy(method, many).mean():.1f} %"

    scales = ", ".join(
        f"{s:g} (L = {d})" for d, s in zip(config.depths, config.scales, strict=True) if d > 1
    )
    return [
        "Accuracy is exact, 1 − ∠(β, β*)/π for Gaussian inputs. EGD is gradient flow of the mean "
        f"loss to t = {config.until:g} from w₁ = 0 and the other factors {scales}. The "
        "paper prints neither step length nor initialization.",
        f"“The 5-layer network performs poorly”: from this start L = 5 reaches {mean('EGD L=5')} "
        f"at N = {many}, and L = 1 {mean('EGD L=1')}. From Gaussian factors (broken lines, "
        f"{config.gaussian_seeds} data sets) L = 5 reaches {gaussian[:, at].mean():.1f} % there, "
        f"{gaussian[:, at].min():.0f} to {gaussian[:, at].max():.0f} % by data set and scale, and "
        f"{gaussian[:, config.observations.index(most)].mean():.1f} % at N = {most}. So the "
        "cause is the start together with too few samples, not the depth.",
        "“Population Fisher worse than EGD”: it is not worse than EGD L = 1 "
        f"({mean(POPULATION)} and {mean('EGD L=1')} at N = {many}). A sample of "
        f"{config.sample} inputs gives the same result as the closed form.",
    ]
