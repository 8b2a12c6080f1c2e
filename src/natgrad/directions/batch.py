"""The border at which batches are checked."""

from typing import Any

import torch
from torch import Tensor

from natgrad.errors import DtypeError, NonFiniteError, ShapeError
from natgrad.parametrizations.base import P, Parametrization


def check_problem(
    parametrization: Parametrization[P], params: P, batch: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """Return (x, y) after checking parameters, inputs and that labels pair up.

    Raises:
        InvalidInputError: One of its subclasses, saying what was expected and what came.
    """
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


def check_inputs(parametrization: Parametrization[P], params: P, x: Any) -> None:
    """Raise unless x is a non-empty finite batch that the parametrization can read."""
    if not isinstance(x, Tensor):
        raise DtypeError(f"inputs must be a torch.Tensor, but got {describe(x)}.")
    if x.ndim == 0 or len(x) == 0:
        raise ShapeError(f"the batch is empty: inputs have shape {tuple(x.shape)}.")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise NonFiniteError(
            "inputs must be finite, but some entries are NaN or infinite; drop or impute them."
        )
    parametrization.check_inputs(params, x)


def describe(value: object) -> str:
    """Return a short name of what came instead of what was expected."""
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of length {len(value)}"
    return f"a {type(value).__name__}"
