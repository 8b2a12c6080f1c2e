"""Checks of the arguments of the diagnostics."""

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, FLOATS, dense, tensor
from natgrad.errors import DeviceError, LabelError, ShapeError, VelocityOverflowError


def check_real(t: object, name: str, ndim: int = 1) -> Tensor:
    """Return t; raise unless it is finite, floating-point, and has `ndim` dimensions or more.

    Half precision becomes float32, because few decompositions support it.
    """
    found = tensor(t, name, dtypes=ALL_FLOATS, empty=True)
    if found.ndim < ndim or 0 in found.shape[-ndim:]:
        raise ShapeError(
            f"{name} must have at least {ndim} dimensions and not be empty, but has shape "
            f"{tuple(found.shape)}."
        )
    return found if found.dtype in FLOATS else found.float()


def check_same_length(a: Tensor, b: Tensor, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Return both in the wider of their dtypes; raise unless the last dimensions agree."""
    a, b = (check_real(t, name) for t, name in zip((a, b), names, strict=True))
    if a.shape[-1] != b.shape[-1]:
        raise ShapeError(
            f"{names[0]} and {names[1]} must have equal last dimensions, but have shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}."
        )
    return alike(a, b, names)


def alike(a: Tensor, b: Tensor, names: tuple[str, str]) -> tuple[Tensor, Tensor]:
    """Return both in the wider of their dtypes; raise unless they share a device."""
    if a.device != b.device:
        raise DeviceError(
            f"{names[0]} is on {a.device} but {names[1]} on {b.device}; move one with .to()."
        )
    wider = torch.promote_types(a.dtype, b.dtype)
    return a.to(wider), b.to(wider)


def broadcast(a: Tensor, b: Tensor, names: tuple[str, str]) -> None:
    """Raise unless leading dimensions can be broadcast."""
    sides = zip(reversed(a.shape), reversed(b.shape), strict=False)
    if any(n != m and 1 not in (n, m) for n, m in sides):
        raise ShapeError(
            f"{names[0]} and {names[1]} must have leading dimensions that broadcast, but have "
            f"shapes {tuple(a.shape)} and {tuple(b.shape)}."
        )


def check_labelled(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return x and y in one dtype; raise unless x is `(n, d)` and y holds n labels −1 and +1."""
    x, y = check_real(x, "X", 2), dense(y, "labels")
    if x.ndim != 2 or y.shape != x.shape[:1]:
        raise ShapeError(
            f"X must have shape (n, d) and y (n,), but have {tuple(x.shape)} and {tuple(y.shape)}."
        )
    if y.is_complex() or y.dtype == torch.bool or not bool((y.abs() == 1).all()):
        plain = not y.is_complex() and y.dtype != torch.bool
        wrong = f"{y[y.abs() != 1][0].item():g}" if plain else f"of {y.dtype}"
        raise LabelError(f"labels must be −1 or +1, but one is {wrong}.")
    if x.device != y.device:
        raise DeviceError(f"X is on {x.device} but labels on {y.device}; move one with .to().")
    return x, y.to(x.dtype)


def fits(t: Tensor, name: str) -> Tensor:
    """Return t; raise if it overflowed. NaN, where a quantity is not defined, passes."""
    if bool(torch.isinf(t).any()):
        raise VelocityOverflowError(
            f"{name} overflows {t.dtype}. Use a wider dtype, or divide by a constant first."
        )
    return t
