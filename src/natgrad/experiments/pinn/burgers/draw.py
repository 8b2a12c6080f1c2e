"""The picture of pinn/burgers."""

from matplotlib.figure import Figure

from natgrad.experiments.pinn._solve import sharp
from natgrad.experiments.pinn.burgers.config import BurgersFigure
from natgrad.lab.arrays import Arrays


def draw(config: BurgersFigure, arrays: Arrays) -> Figure:
    """Return errors, losses and profiles of both fits."""
    return sharp.draw(config, arrays, "Burgers’ shock needs new points every ten steps")
