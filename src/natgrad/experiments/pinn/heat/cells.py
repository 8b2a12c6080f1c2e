"""Cells of pinn/heat."""

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn.heat.config import HeatFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import Sweep


def compute(config: HeatFigure, sweep: Sweep) -> Arrays:
    """Return error and loss of every fit."""
    return smooth.compute("heat", config, sweep)
