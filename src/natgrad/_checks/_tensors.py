"""Checks of tensors, dtypes and generators."""

from __future__ import annotations

import math
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from natgrad._checks._described import describe, is_tensor
from natgrad.errors import DeviceError, DtypeError, NonFiniteError, ShapeError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@cache
def floats() -> tuple[torch.dtype, ...]:
    import torch

    return torch.float32, torch.float64


def generator(
    value: Any, name: str = "generator", *, optional: bool = True
) -> torch.Generator | None:
    """Return a `torch.Generator`, or None where that is allowed."""
    if value is None and optional:
        return None
    import torch

    if not isinstance(value, torch.Generator):
        raise DtypeError(
            f"{name} must be a torch.Generator{' or None' if optional else ''}, but is "
            f"{describe(value)}; try torch.Generator().manual_seed(0)."
        )
    return value


def dtype(value: Any, name: str = "dtype") -> torch.dtype:
    """Return float32 or float64; raise `DtypeError` at anything else."""
    import torch

    if isinstance(value, torch.dtype) and value in floats():
        return value
    got = str(value) if isinstance(value, torch.dtype) else describe(value)
    raise DtypeError(f"{name} must be torch.float32 or torch.float64, but is {got}.")


def dense(value: Any, name: str) -> Tensor:
    """Return a tensor that holds its numbers one by one: not sparse, quantized, nested or meta."""
    if not is_tensor(value):
        raise DtypeError(f"{name} must be a torch.Tensor, but is {describe(value)}.")
    if value.is_nested:
        raise DtypeError(f"{name} must be dense, but is a nested tensor; try .to_padded_tensor(0).")
    if not is_strided(value):
        raise DtypeError(f"{name} must be dense, but has layout {value.layout}; try .to_dense().")
    if value.is_quantized:
        raise DtypeError(f"{name} must not be quantized, but is {value.dtype}; try .dequantize().")
    if value.is_meta:
        raise DeviceError(f"{name} must hold numbers, but is on the meta device, which has none.")
    return value


def tensor(
    value: Any,
    name: str,
    *,
    shape: tuple[int | str, ...] | None = None,
    dtypes: tuple[torch.dtype, ...] | None = None,
    finite: bool = True,
    empty: bool = False,
) -> Tensor:
    """Return a dense floating-point tensor, itself and not a copy.

    Args:
        value: What came.
        name: How the caller knows it.
        shape: What each side must be; a string names a side that may have any length. None for
            any shape.
        dtypes: Dtypes accepted; default float32 and float64.
        finite: Whether NaN and infinities are refused.
        empty: Whether a tensor without entries is accepted.

    Raises:
        DtypeError: If it is no dense tensor of these dtypes.
        DeviceError: If it is on the meta device.
        ShapeError: If it has another shape or no entries.
        NonFiniteError: If it holds NaN or an infinity.

    Example:
        >>> import torch
        >>> tensor(torch.zeros(2, 3), "X", shape=("n", 2))
        Traceback (most recent call last):
        ...
        natgrad.errors.ShapeError: X must have shape (n, 2), but has (2, 3).
    """
    found = dense(value, name)
    accepted = floats() if dtypes is None else dtypes
    if found.dtype not in accepted:
        known = " or ".join(str(dtype).removeprefix("torch.") for dtype in accepted)
        raise DtypeError(f"{name} must be a {known} tensor, but is {found.dtype}; try .double().")
    if shape is not None and not (
        found.ndim == len(shape)
        and all(isinstance(w, str) or n == w for n, w in zip(found.shape, shape, strict=True))
    ):
        sides = ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "")
        raise ShapeError(f"{name} must have shape ({sides}), but has {tuple(found.shape)}.")
    if not empty and found.numel() == 0:
        raise ShapeError(f"{name} must not be empty, but has shape {tuple(found.shape)}.")
    if finite:
        require_finite(found, name)
    return found


def same_kind(value: Tensor, like: Tensor, name: str, like_name: str) -> None:
    """Raise unless two tensors have one device and one dtype."""
    if value.device != like.device:
        raise DeviceError(
            f"{name} must be on the device of {like_name}, but they are on {value.device} and "
            f"{like.device}; move one with .to()."
        )
    if value.dtype != like.dtype:
        raise DtypeError(
            f"{name} must have the dtype of {like_name}, but they have {value.dtype} and "
            f"{like.dtype}; convert one with .to()."
        )


def require_finite(value: Tensor, name: str) -> None:
    """Raise `NonFiniteError` if the tensor holds NaN or an infinity."""
    if not all_finite(value):
        bad = int((~value.isfinite()).sum())
        raise NonFiniteError(
            f"{name} must be finite, but {bad} of its {value.numel()} entries are NaN or infinite."
            " Look for a diverged run, an overflow or missing values upstream."
        )


def all_finite(value: Tensor) -> bool:
    """Return whether no entry is NaN or infinite, in one pass over the entries if so."""
    # A NaN or an infinity always shows in the sum; a sum may also overflow by itself.
    total = (value.detach() if value.requires_grad else value).sum()
    return math.isfinite(total) or bool(value.isfinite().all())


def is_strided(value: Tensor) -> bool:
    # Whoever has a tensor has imported torch. An import statement here would cost more.
    strided: bool = value.layout is sys.modules["torch"].strided
    return strided
