"""Natural gradient descent as a `torch.optim.Optimizer`."""

from natgrad.optim._capture.moments import Factors
from natgrad.optim._criteria.custom import Loss
from natgrad.optim._diagnose import Diagnosis, diagnose
from natgrad.optim._layers.coverage import UncoveredWarning
from natgrad.optim.damping import Adaptive, Falling, Fixed, Scheduled
from natgrad.optim.gauss_newton import (
    AliasingWarning,
    GaussNewton,
    GaussNewtonStatistics,
    SlowRowsWarning,
)
from natgrad.optim.ngd import NGD
from natgrad.optim.preconditioner import Preconditioner
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.step_length import (
    AdaptationWarning,
    EqualShare,
    Learned,
    PerLayer,
    Quadratic,
)

__all__ = [
    "NGD",
    "AdaptationWarning",
    "Adaptive",
    "AliasingWarning",
    "Diagnosis",
    "EqualShare",
    "Factors",
    "Falling",
    "Fixed",
    "GaussNewton",
    "GaussNewtonStatistics",
    "Learned",
    "Loss",
    "PerLayer",
    "Preconditioner",
    "Quadratic",
    "Scheduled",
    "SlowRowsWarning",
    "StepStatistics",
    "UncoveredWarning",
    "diagnose",
]
