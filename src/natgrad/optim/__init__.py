"""Natural gradient descent as a `torch.optim.Optimizer`."""

from natgrad.optim.coverage import UncoveredWarning
from natgrad.optim.damping import Adaptive, Fixed, Scheduled
from natgrad.optim.diagnose import Diagnosis, diagnose
from natgrad.optim.factors import Factors
from natgrad.optim.ngd import NGD
from natgrad.optim.precondition import Preconditioner
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.steplength import EqualShare, PerLayer, Quadratic

__all__ = [
    "NGD",
    "Adaptive",
    "Diagnosis",
    "EqualShare",
    "Factors",
    "Fixed",
    "PerLayer",
    "Preconditioner",
    "Quadratic",
    "Scheduled",
    "StepStatistics",
    "UncoveredWarning",
    "diagnose",
]
