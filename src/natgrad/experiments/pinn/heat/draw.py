"""The picture of pinn/heat."""

from matplotlib.figure import Figure

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn.heat.config import HeatFigure
from natgrad.lab.arrays import Arrays


def draw(config: HeatFigure, arrays: Arrays) -> Figure:
    """Return errors along the steps and at the end."""
    return smooth.draw(config, arrays, "The heat equation is solved from every seed")
