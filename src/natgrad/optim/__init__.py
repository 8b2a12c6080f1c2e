"""Natural gradient descent as a `torch.optim.Optimizer`."""

from natgrad.optim.damping import Adaptive, Fixed, Scheduled
from natgrad.optim.factors import Factors
from natgrad.optim.layers import UncoveredWarning
from natgrad.optim.ngd import NGD
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.steplength import EqualShare, PerLayer, Quadratic

__all__ = [
    "NGD",
    "Adaptive",
    "EqualShare",
    "Factors",
    "Fixed",
    "PerLayer",
    "Quadratic",
    "Scheduled",
    "StepStatistics",
    "UncoveredWarning",
]
