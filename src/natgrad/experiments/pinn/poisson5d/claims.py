"""Claims of pinn/poisson5d."""

from collections.abc import Sequence

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn._solve.smooth import departures
from natgrad.experiments.pinn.poisson5d.config import Poisson5dFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim

__all__ = ["claims", "departures"]


def claims(config: Poisson5dFigure, arrays: Arrays) -> Sequence[Claim]:
    """Return what the fits show."""
    return smooth.reached(config, arrays, ("quick", "paper"))
