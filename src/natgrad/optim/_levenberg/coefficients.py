"""Tensors that are trained beside a network's own parameters."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from natgrad._checks import dense, describe, same_kind
from natgrad.errors import DtypeError, InvalidInputError

__all__ = ["trained_beside"]


def trained_beside(given: Any, params: Sequence[Tensor]) -> list[Tensor]:
    """Return further tensors to train, checked."""
    if isinstance(given, Tensor) or not isinstance(given, Sequence) or isinstance(given, str):
        raise DtypeError(
            f"coefficients must be a sequence of tensors, but is {describe(given)}; write [k]."
        )
    known, found = {id(p) for p in params}, []
    for i, one in enumerate(given):
        c = dense(one, f"coefficients[{i}]")
        if not c.is_leaf or not c.requires_grad:
            raise InvalidInputError(
                f"coefficients[{i}] must be a leaf that requires a gradient; make it with "
                "torch.nn.Parameter(torch.tensor(1.0, dtype=torch.float64))."
            )
        same_kind(c, params[0], f"coefficients[{i}]", "the model's parameters")
        if id(c) not in known:
            known.add(id(c))
            found.append(c)
    return found
