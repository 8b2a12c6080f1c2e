"""The picture of pinn/helmholtz."""

from matplotlib.figure import Figure

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn.helmholtz.config import HelmholtzFigure
from natgrad.lab.arrays import Arrays


def draw(config: HelmholtzFigure, arrays: Arrays) -> Figure:
    """Return errors along the steps and at the end."""
    return smooth.draw(
        config, arrays, "Helmholtz’ equation with four waves is solved from every seed"
    )
