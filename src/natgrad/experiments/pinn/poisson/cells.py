"""Cells of pinn/poisson."""

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn.poisson.config import PoissonFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import Sweep


def compute(config: PoissonFigure, sweep: Sweep) -> Arrays:
    """Return error and loss of every fit."""
    return smooth.compute("poisson", config, sweep)
