"""The picture of pinn/allen_cahn."""

from matplotlib.figure import Figure

from natgrad.experiments.pinn._solve import sharp
from natgrad.experiments.pinn.allen_cahn.config import AllenCahnFigure
from natgrad.lab.arrays import Arrays


def draw(config: AllenCahnFigure, arrays: Arrays) -> Figure:
    """Return errors, losses and profiles of both fits."""
    return sharp.draw(
        config, arrays, "The fronts of Allen and Cahn need new points every ten steps"
    )
