"""Maps from parameters to hypotheses, with their Jacobian products and structured lifts."""

from natgrad.parametrizations.base import (
    Design,
    LiftedHypothesis,
    LinearHypothesis,
    Parametrization,
    Params,
)
from natgrad.parametrizations.deep_linear import DeepLinear
from natgrad.parametrizations.diagonal import Diagonal
from natgrad.parametrizations.direct import Direct
from natgrad.parametrizations.matrix_product import MatrixProduct
from natgrad.parametrizations.network import Network

__all__ = [
    "DeepLinear",
    "Design",
    "Diagonal",
    "Direct",
    "LiftedHypothesis",
    "LinearHypothesis",
    "MatrixProduct",
    "Network",
    "Parametrization",
    "Params",
]
