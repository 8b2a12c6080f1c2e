"""Cells of pinn/allen_cahn."""

from natgrad.experiments.pinn._solve import sharp
from natgrad.experiments.pinn.allen_cahn.config import AllenCahnFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import Sweep


def compute(config: AllenCahnFigure, sweep: Sweep) -> Arrays:
    """Return fits with drawn and with fixed points."""
    return sharp.compute("allen_cahn", config, sweep)
