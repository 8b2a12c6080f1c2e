"""Claims of pinn/allen_cahn."""

from collections.abc import Sequence

from natgrad.experiments.pinn._solve import sharp
from natgrad.experiments.pinn._solve.sharp import departures
from natgrad.experiments.pinn.allen_cahn.config import AllenCahnFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.claim import Claim

__all__ = ["claims", "departures"]


def claims(config: AllenCahnFigure, arrays: Arrays) -> Sequence[Claim]:
    """Return what the fits show."""
    return sharp.claims(config, arrays, 1e-4, ("quick", "paper"))
