"""The picture of pinn/poisson5d."""

from matplotlib.figure import Figure

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn.poisson5d.config import Poisson5dFigure
from natgrad.lab.arrays import Arrays


def draw(config: Poisson5dFigure, arrays: Arrays) -> Figure:
    """Return errors along the steps and at the end."""
    return smooth.draw(
        config, arrays, "Poisson’s equation in five dimensions is solved from every seed"
    )
