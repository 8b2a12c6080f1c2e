"""natgrad: exact natural gradients, and the solutions they pick."""

from natgrad import diagnostics, fisher, limits, reference
from natgrad.directions import GaussianInputs, LayerShares, euclidean, natural
from natgrad.flows import (
    Trajectory,
    descend,
    direction_settled,
    integrate,
    loss_below,
    margin_above,
    steps_reached,
    time_reached,
    wall_clock,
)
from natgrad.kernels import natural_ntk, ntk
from natgrad.likelihoods import Bernoulli, Categorical, Gaussian
from natgrad.parametrizations import DeepLinear, Diagonal, Direct, MatrixProduct, Network

__version__ = "0.1.0"

__all__ = [
    "Bernoulli",
    "Categorical",
    "DeepLinear",
    "Diagonal",
    "Direct",
    "Gaussian",
    "GaussianInputs",
    "LayerShares",
    "MatrixProduct",
    "Network",
    "Trajectory",
    "descend",
    "diagnostics",
    "direction_settled",
    "euclidean",
    "fisher",
    "integrate",
    "limits",
    "loss_below",
    "margin_above",
    "natural",
    "natural_ntk",
    "ntk",
    "reference",
    "steps_reached",
    "time_reached",
    "wall_clock",
]
