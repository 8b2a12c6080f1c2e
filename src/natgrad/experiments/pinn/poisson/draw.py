"""The picture of pinn/poisson."""

from matplotlib.figure import Figure

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn.poisson.config import PoissonFigure
from natgrad.lab.arrays import Arrays


def draw(config: PoissonFigure, arrays: Arrays) -> Figure:
    """Return errors along the steps and at the end."""
    return smooth.draw(config, arrays, "Poisson’s equation is solved from every initialization")
