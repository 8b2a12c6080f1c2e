"""Cells of pinn/poisson5d."""

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn.poisson5d.config import Poisson5dFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import Sweep


def compute(config: Poisson5dFigure, sweep: Sweep) -> Arrays:
    """Return error and loss of every fit."""
    return smooth.compute("poisson5d", config, sweep)
