"""Inputs of matrix completion: positions (row, column) of observed entries."""

import torch
from torch import Tensor

from natgrad.errors import DeviceError, DtypeError, ShapeError


def are_entries(x: Tensor) -> bool:
    """Return whether x holds positions: integers, two per observation."""
    return not x.is_floating_point() and not x.is_complex() and x.dtype != torch.bool


def check_entries(x: Tensor, rows: int, columns: int, device: torch.device) -> None:
    """Raise unless x is an integer tensor `(n, 2)` of positions inside a rows × columns matrix."""
    if not are_entries(x):
        raise DtypeError(
            "matrix completion takes integer positions (row, column) of shape (n, 2), but the "
            f"inputs have dtype {x.dtype}; try x.long()."
        )
    if x.ndim != 2 or x.shape[1] != 2:
        raise ShapeError(
            f"positions must have shape (n, 2), row and column, but have {tuple(x.shape)}."
        )
    if x.device != device:
        raise DeviceError(f"positions are on {x.device} but parameters on {device}.")
    low, high = x.min(0).values, x.max(0).values
    if bool((low < 0).any()) or int(high[0]) >= rows or int(high[1]) >= columns:
        raise ShapeError(
            f"positions must lie inside the {rows}×{columns} matrix, but range from "
            f"{tuple(low.tolist())} to {tuple(high.tolist())} (counting from 0)."
        )


def gather(h: Tensor, x: Tensor) -> Tensor:
    """Return the entries of h at positions x, shape `(n,)`."""
    rows, columns = x.long().unbind(1)
    return h[rows, columns]


def scatter(h: Tensor, x: Tensor, u: Tensor) -> Tensor:
    """Return the adjoint of `gather`: u summed into a zero matrix in the shape of h."""
    return torch.zeros_like(h).index_put_(x.long().unbind(1), u, accumulate=True)
