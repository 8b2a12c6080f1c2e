"""Claims on square loss."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from natgrad.experiments.atlas.square.cells import CASES
from natgrad.experiments.atlas.square.config import Square
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS


def claims(config: Square, arrays: Arrays) -> Sequence[Claim]:
    """Return claims on the ends of flows, and on risks in regression."""
    many = len(config.seeds)
    found = [
        Claim(
            id=f"one-limit-{depth}",
            statement=f"diagonal, L = {depth}: natural flow with every damping ends where gradient "
            "flow does (largest relative distance)",
            source="natgrad, docs/findings.md",
            value=float(arrays["diagonal"][k].max()),
            relation="<=",
            bound=1e-8,
            n=many,
            presets=PRESETS,
        )
        for k, depth in enumerate(config.depths)
    ]
    found.append(
        Claim(
            id="products-part",
            statement="products of two matrices: natural flow without damping ends elsewhere "
            "(smallest relative distance)",
            source="natgrad",
            value=float(arrays["product"][:, 0].min()),
            relation=">=",
            bound=0.01,
            n=many,
            presets=PRESETS,
        )
    )
    better = {
        "clean, isotropic": "gradient descent",
        "clean, misaligned": "natural gradient",
        "noise alone": "natural gradient",
        "noisy, misaligned": "natural gradient",
    }
    return [*found, *(_risk(arrays, case, winner) for case, winner in better.items())]


def _risk(arrays: Arrays, case: str, winner: str) -> Claim:
    gradient, natural = arrays["risk"][CASES.index(case)]
    difference = gradient - natural if winner == "natural gradient" else natural - gradient
    return Claim(
        id="risk-" + case.replace(",", "").replace(" ", "-"),
        statement=f"regression, {case}: {winner} has the smaller risk (lower end of the 95 % "
        "interval of the mean difference)",
        source="arXiv 2006.10732",
        value=float(_low(difference)),
        relation=">",
        bound=0.0,
        n=len(difference),
        presets=PRESETS,
    )


def _low(values: Any) -> float:
    return float(values.mean() - 1.96 * values.std(ddof=1) / np.sqrt(len(values)))


def departures(config: Square, arrays: Arrays) -> Sequence[str]:
    """Return our choices, and the risks."""
    risks = [
        f"{case}: {gradient:.3f} and {natural:.3f}"
        for case, (gradient, natural) in zip(CASES, arrays["risk"].mean(-1), strict=True)
    ]
    return [
        "Mean risks of gradient descent and of natural gradient with the population Fisher: "
        f"{'; '.join(risks)}.",
        "Eigenvalues of the inputs' covariance run from 10 to 0.1. Both interpolants are limits in "
        "closed form; misaligned truths are large where inputs are small.",
        "Flows run until residuals are 1e-10 of the labels, with a Runge–Kutta pair of order 8.",
    ]
