"""Claims of pinn/inverse."""

from collections.abc import Sequence

import numpy as np

from natgrad.experiments.pinn._equations.heat import CONDUCTIVITY
from natgrad.experiments.pinn.inverse.cells import START, error
from natgrad.experiments.pinn.inverse.config import InverseFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim, over_seeds

_JUDGED = ("quick", "paper")


def claims(config: InverseFigure, arrays: Arrays) -> Sequence[Claim]:
    """Return how close κ comes."""
    noisy = error(arrays, 1)
    bound = arrays["bound"][1]
    return [
        Claim(
            id="exact-data",
            statement="without noise κ is right to 1e-5 from every seed (largest relative error)",
            source="natgrad",
            **over_seeds(np.abs(error(arrays, 0)) / CONDUCTIVITY, "max"),
            relation="<",
            bound=1e-5,
            presets=_JUDGED,
        ),
        Claim(
            id="cramer-rao",
            statement="with noise the error is that of an efficient estimate "
            "(root mean square of error over bound)",
            source="natgrad",
            value=float(np.sqrt(np.mean((noisy / bound) ** 2))),
            n=len(noisy),
            relation="within",
            bound=(0.6, 1.4),
            presets=("paper",),
        ),
        Claim(
            id="unbiased",
            statement="the mean error is within two standard errors of zero",
            source="natgrad",
            value=float(abs(noisy.mean()) / (bound.mean() / len(noisy) ** 0.5)),
            n=len(noisy),
            relation="<=",
            bound=2.0,
            presets=("paper",),
        ),
    ]


def departures(config: InverseFigure, arrays: Arrays) -> Sequence[str]:
    """Return how the fits were made."""
    return [
        f"No paper prints this figure. κ starts at {START:g} and is {CONDUCTIVITY:g}. Steps are "
        "without momentum, which slows the convergence of κ. The Cramér–Rao bound is that of κ "
        "alone, with the equation, the start and the ends known exactly; in the fit they weigh "
        "100 times as much as the data.",
    ]
