"""natgrad: exact natural gradients, and the solutions they pick."""

from natgrad import fisher, reference
from natgrad.directions import GaussianInputs, LayerShares, euclidean, natural
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
    "euclidean",
    "fisher",
    "natural",
    "natural_ntk",
    "ntk",
    "reference",
]
