"""Tests of claims of the literature on separators, and our choices."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.atlas.separators.cells import LIMITS, METHODS
from natgrad.experiments.atlas.separators.config import Separators
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS

_STEEPEST = {"coordinate descent": 0, "normalized gradient": 1, "sign descent": 2}


def claims(config: Separators, arrays: Arrays) -> Sequence[Claim]:
    """Return claims about the ends of the paths; n is the number of data sets."""
    names, n = list(METHODS), len(config.seeds)
    last = arrays["fractions"][:, :, -1]
    ends = arrays["angles"][:, :, -1]

    def own(name: str, column: int) -> float:
        rows = last[names.index(name)]
        return float((rows.argmax(1) == column).mean())

    def worst(name: str, limit: str) -> float:
        return float(ends[names.index(name), :, LIMITS.index(limit)].max())

    certificates = arrays["certificates"]
    return [
        Claim(
            id="certificates",
            statement="every limit is certified (largest relative gap)",
            source="natgrad.limits",
            value=float(certificates.max()),
            relation="<=",
            bound=1e-8,
            n=n,
            presets=PRESETS,
        ),
        *(
            Claim(
                id=f"own-norm-{name.split()[0]}",
                statement=f"{name}: the norm in which its margin is nearest to the largest is its "
                "own (share of data sets)",
                source="arXiv 2502.04664",
                value=own(name, column),
                relation=">=",
                bound=1.0,
                n=n,
                presets=PRESETS,
            )
            for name, column in _STEEPEST.items()
        ),
        *(
            Claim(
                id=f"fraction-{name.split()[0]}",
                statement=f"{name}: median share of the largest margin in its own norm",
                source="arXiv 2502.04664",
                value=float(np.median(last[names.index(name), :, column])),
                relation=">=",
                bound=0.9,
                n=n,
                presets=("quick", "paper"),
            )
            for name, column in _STEEPEST.items()
        ),
        Claim(
            id="adam-max",
            statement="Adam, β₂ = .95: the norm in which its margin is nearest to the largest is "
            "ℓ∞ (share of data sets)",
            source="arXiv 2502.04664",
            value=own("Adam, β₂ = .95", 2),
            relation=">=",
            bound=1.0,
            n=n,
            presets=("quick", "paper"),
        ),
        Claim(
            id="adam-one-sample",
            statement="Adam on single samples ends with a smaller share of the ℓ∞ margin than Adam "
            "on all of them (share of data sets)",
            source="arXiv 2510.26303",
            value=float(
                (
                    last[names.index("Adam, one sample"), :, 2]
                    < last[names.index("Adam, β₂ = .95"), :, 2]
                ).mean()
            ),
            relation=">=",
            bound=1.0,
            n=n,
            presets=("quick", "paper"),
        ),
        Claim(
            id="kfac-metric",
            statement="K-FAC ends near the margin in its (A + λ)-norm (degrees, largest)",
            source="natgrad",
            value=worst("K-FAC", "K-FAC metric"),
            relation="<=",
            bound=0.5,
            n=n,
            presets=PRESETS,
        ),
        Claim(
            id="natural-vertex",
            statement="natural gradient descent ends near the vertex of the linear program "
            "(degrees, largest)",
            source="natgrad",
            value=worst("natural gradient", "vertex"),
            relation="<=",
            bound=1.0,
            n=n,
            presets=PRESETS,
        ),
    ]


def departures(config: Separators, arrays: Arrays) -> Sequence[str]:
    """Return our choices."""
    return [
        "Features have scales from 0.3 to 3, so that the margins in different norms are different "
        "separators. Steps of steepest descents and Adam shorten like k^{−1/2}, as the theorems "
        "assume, with ε = 0 in Adam.",
        "The share of the largest margin is measured against limits that a solver of another kind "
        "certified. The averaged gradient weights of each descent bound the same margins without "
        "a solver; the array `certified` holds what they prove.",
        "Diagonal Fisher and Adam on single samples have no limit in this list: theirs depends on "
        "their own paths. They are undecided, and shown without a star.",
    ]
