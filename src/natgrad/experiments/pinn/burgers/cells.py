"""Cells of pinn/burgers."""

from natgrad.experiments.pinn._solve import sharp
from natgrad.experiments.pinn.burgers.config import BurgersFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import Sweep


def compute(config: BurgersFigure, sweep: Sweep) -> Arrays:
    """Return fits with drawn and with fixed points."""
    return sharp.compute("burgers", config, sweep)
