"""Cells of pinn/helmholtz."""

from natgrad.experiments.pinn._solve import smooth
from natgrad.experiments.pinn.helmholtz.config import HelmholtzFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import Sweep


def compute(config: HelmholtzFigure, sweep: Sweep) -> Arrays:
    """Return error and loss of every fit."""
    return smooth.compute("helmholtz", config, sweep)
