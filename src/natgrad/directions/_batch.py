"""Checks of batches."""

from typing import Any

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, all_finite, dense
from natgrad.errors import DeviceError, DtypeError, NonFiniteError, ShapeError
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import LinearHypothesis, P, Parametrization, leaves


def check_problem(
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor]:
    """Return (x, y) after checking parameters, inputs, and that there is one label per input.

    Raises:
        InvalidInputError: One of its subclasses, with the expected and the given value.
    """
    check_model(parametrization, likelihood)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        raise DtypeError(f"batch must be a pair (x, y) of tensors, but got {describe(batch)}.")
    x, y = batch
    check_params(parametrization, params)
    check_inputs(parametrization, params, x)
    _check_dense(y, "labels")
    if y.ndim == 0 or len(y) != len(x):
        raise ShapeError(
            f"labels must pair up with the {len(x)} inputs, but have shape {tuple(y.shape)}."
        )
    return x, y


def plainly_linear(
    likelihood: object, parametrization: object, params: object, batch: object
) -> bool:
    """Return whether ordinary tensors form a linear problem; raise if their shapes do not fit.

    If they do, inputs need not be checked: NaN or infinity always shows in the outputs.
    The likelihood checks the values of labels. False means that `check_problem` decides.
    """
    if not (type(batch) is tuple and len(batch) == 2 and isinstance(likelihood, Likelihood)):
        return False
    x, y = batch
    if not (isinstance(parametrization, LinearHypothesis) and type(params) is type(x) is Tensor):
        return False
    if type(y) is not Tensor or x.is_nested or params.is_nested or y.is_nested or y.is_quantized:
        return False
    if not (y.ndim and x.ndim and 0 < x.shape[0] == y.shape[0]):
        return False
    if x.dtype != params.dtype or not x.device == params.device == y.device:
        return False
    if not x.layout == params.layout == y.layout == torch.strided:
        return False
    parametrization.check(params)
    parametrization.check_inputs(params, x)
    return True


def check_params(parametrization: Parametrization[P], params: P) -> None:
    """Raise unless params are dense tensors that the parametrization takes."""
    if isinstance(params, Tensor):
        _check_dense(params, "parameters")
        parametrization.check(params)
        return
    parts: list[Any] = []
    if isinstance(params, (dict, tuple, list)):
        parts = list(params.values() if isinstance(params, dict) else params)
    tensors = [part for part in parts if isinstance(part, Tensor)]
    for part in tensors:
        _check_dense(part, "parameters")
    if tensors and all(part.is_meta for part in tensors):
        raise DeviceError("parameters are on the meta device, which holds no numbers.")
    parametrization.check(params)


def _check_dense(value: object, name: str) -> None:
    """Raise unless the value is a dense tensor; devices are compared elsewhere."""
    if not isinstance(value, Tensor):
        raise DtypeError(f"{name} must be a torch.Tensor, but got {describe(value)}.")
    if not value.is_meta:
        dense(value, name)


_NOT_GIVEN = object()


def check_model(parametrization: object, likelihood: object = _NOT_GIVEN) -> None:
    """Raise unless the arguments are a parametrization and, if given, a likelihood."""
    if likelihood is not _NOT_GIVEN and not isinstance(likelihood, Likelihood):
        raise DtypeError(f"the loss must be a natgrad likelihood, but got {describe(likelihood)}.")
    if not isinstance(parametrization, Parametrization):
        raise DtypeError(
            f"the model must be a natgrad parametrization, but got {describe(parametrization)}; "
            "wrap a torch.nn.Module in Network."
        )


def check_inputs(parametrization: Parametrization[P], params: P, x: Any) -> None:
    """Raise unless x is a non-empty finite batch that the parametrization can read."""
    _check_dense(x, "inputs")
    if x.ndim == 0 or len(x) == 0:
        raise ShapeError(f"the batch is empty: inputs have shape {tuple(x.shape)}.")
    like = leaves(params)[0]
    if x.device != like.device:
        raise DeviceError(
            f"inputs are on {x.device} but parameters on {like.device}; move one with .to()."
        )
    if x.is_floating_point() and x.dtype not in ALL_FLOATS:
        raise DtypeError(f"inputs have dtype {x.dtype}, which is not supported; try .double().")
    if x.is_floating_point() and not all_finite(x):
        raise NonFiniteError(
            "inputs must be finite, but some entries are NaN or infinite; drop or impute them."
        )
    parametrization.check_inputs(params, x)


def finite_outputs(parametrization: Parametrization[P], params: P, x: Tensor) -> Tensor:
    """Return the outputs at x, refusing those that are NaN or infinite."""
    outputs = parametrization.predict(params, x)
    if not all_finite(outputs):
        raise NonFiniteError(
            "the model's outputs must be finite, but some are NaN or infinite. Has the run "
            "diverged? Try smaller parameters or inputs."
        )
    return outputs


def describe(value: object) -> str:
    """Return a short description of an unexpected value."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"a {type(value).__name__}"
