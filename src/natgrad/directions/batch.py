"""The border at which batches are checked."""

from typing import Any

import torch
from torch import Tensor

from natgrad.errors import DeviceError, DtypeError, NonFiniteError, ShapeError
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import P, Parametrization, leaves


def check_problem(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Return (x, y) after checking parameters, inputs and that labels pair up.

    Raises:
        InvalidInputError: One of its subclasses, saying what was expected and what came.
    """
    check_model(parametrization, likelihood)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise DtypeError(f"batch must be a pair (x, y) of tensors, but got {describe(batch)}.")
    x, y = batch
    parametrization.check(params)
    check_inputs(parametrization, params, x)
    if not isinstance(y, Tensor):
        raise DtypeError(f"labels must be a torch.Tensor, but got {describe(y)}.")
    if y.ndim == 0 or len(y) != len(x):
        raise ShapeError(
            f"labels must pair up with the {len(x)} inputs, but have shape {tuple(y.shape)}."
        )
    return x, y


def check_model(parametrization: object, likelihood: object = None) -> None:
    """Raise unless the arguments are a parametrization and, if given, a likelihood."""
    if likelihood is not None and not isinstance(likelihood, Likelihood):
        raise DtypeError(f"the loss must be a natgrad likelihood, but got {describe(likelihood)}.")
    if not isinstance(parametrization, Parametrization):
        raise DtypeError(
            f"the model must be a natgrad parametrization, but got {describe(parametrization)}; "
            "wrap a torch.nn.Module in Network."
        )


def check_inputs(parametrization: Parametrization[P], params: P, x: Any) -> None:
    """Raise unless x is a non-empty finite batch that the parametrization can read."""
    if not isinstance(x, Tensor):
        raise DtypeError(f"inputs must be a torch.Tensor, but got {describe(x)}.")
    if x.layout != torch.strided:
        raise DtypeError(f"inputs must be dense, but have layout {x.layout}; try x.to_dense().")
    if x.ndim == 0 or len(x) == 0:
        raise ShapeError(f"the batch is empty: inputs have shape {tuple(x.shape)}.")
    like = leaves(params)[0]
    if x.device != like.device:
        raise DeviceError(
            f"inputs are on {x.device} but parameters on {like.device}; move one with .to()."
        )
    if x.is_meta:
        raise DeviceError("inputs and parameters are on the meta device, which holds no numbers.")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise NonFiniteError(
            "inputs must be finite, but some entries are NaN or infinite; drop or impute them."
        )
    parametrization.check_inputs(params, x)


def finite_outputs(parametrization: Parametrization[P], params: P, x: Tensor) -> Tensor:
    """Return the outputs at x, refusing those that are NaN or infinite."""
    outputs = parametrization.predict(params, x)
    if not bool(torch.isfinite(outputs).all()):
        raise NonFiniteError(
            "the model's outputs must be finite, but some are NaN or infinite. Has the run "
            "diverged? Try smaller parameters or inputs."
        )
    return outputs


def describe(value: object) -> str:
    """Return a short name of what came instead of what was expected."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"a {type(value).__name__}"
