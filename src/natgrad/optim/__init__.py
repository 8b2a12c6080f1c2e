"""Natural gradient descent as a `torch.optim.Optimizer`."""

from natgrad.optim._capture.moments import Factors
from natgrad.optim._diagnose import Diagnosis, diagnose
from natgrad.optim._layers.coverage import UncoveredWarning
from natgrad.optim.damping import Adaptive, Falling, Fixed, Scheduled
from natgrad.optim.ngd import NGD
from natgrad.optim.preconditioner import Preconditioner
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.step_length import EqualShare, Learned, PerLayer, Quadratic

__all__ = [
    "NGD",
    "Adaptive",
    "Diagnosis",
    "EqualShare",
    "Factors",
    "Falling",
    "Fixed",
    "Learned",
    "PerLayer",
    "Preconditioner",
    "Quadratic",
    "Scheduled",
    "StepStatistics",
    "UncoveredWarning",
    "diagnose",
]
