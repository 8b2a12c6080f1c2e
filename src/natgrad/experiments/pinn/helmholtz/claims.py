"""Claims of pinn/helmholtz."""

from collections.abc import Sequence

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn._solve.smooth import departures
from natgrad.experiments.pinn.helmholtz.config import HelmholtzFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim

__all__ = ["claims", "departures"]


def claims(config: HelmholtzFigure, arrays: Arrays) -> Sequence[Claim]:
    """Return what the fits show."""
    return smooth.reached(config, arrays, ("quick", "paper"))
