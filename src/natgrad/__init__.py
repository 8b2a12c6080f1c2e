"""natgrad: exact natural gradients, and the solutions they pick."""

from typing import TYPE_CHECKING, Any

from natgrad import data, diagnostics, fisher, limits, reference
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
from natgrad.optim import NGD, diagnose
from natgrad.parametrizations import DeepLinear, Diagonal, Direct, MatrixProduct, Network

if TYPE_CHECKING:
    from natgrad.experiments.compare import compare
    from natgrad.experiments.complete import complete

__version__ = "0.2.0"

__all__ = [
    "NGD",
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
    "compare",
    "complete",
    "data",
    "descend",
    "diagnose",
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


def __getattr__(name: str) -> Any:
    """Import what few need, and the laboratory with it, when it is first asked for."""
    if name in ("compare", "complete"):
        from importlib import import_module

        return getattr(import_module(f"natgrad.experiments.{name}"), name)
    raise AttributeError(f"module 'natgrad' has no attribute {name!r}")
