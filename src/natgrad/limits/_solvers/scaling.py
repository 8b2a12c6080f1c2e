"""Data scaled to one size; scaling the limits back is exact."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad.linalg._columns import column_exponents, times_power


class Balanced(NamedTuple):
    """The constraint Ab ≥ 1 as R b′ ≥ h with rows of R of unit length, 0 < h ≤ 1, b = `size` b′.

    Multipliers of Ab ≥ 1 are those of R b′ ≥ h divided by `norms` (times `size` for ½‖b‖²).
    """

    rows: Tensor
    h: Tensor
    norms: Tensor
    size: float


def unit_size(a: Tensor) -> tuple[Tensor, int]:
    """Return A 2^{−e} with a largest entry in [½, 1), without rounding, and e (0 for zeros)."""
    e = math.frexp(float(a.abs().max()))[1]
    return times_power(a, -e), e


def unit_columns(a: Tensor) -> tuple[Tensor, Tensor]:
    """Return A 2^{−e} with columns of one size, and e, the same for all if they had one size."""
    e = column_exponents(a)
    if e is None:
        unit, power = unit_size(a)
        return unit, torch.full((a.shape[1],), float(power), dtype=torch.float64)
    return times_power(a, -e), e


def scaled(value: float, exponent: float) -> float:
    """Return value · 2^exponent, infinite where that overflows."""
    return float(times_power(torch.tensor(value, dtype=torch.float64), exponent))


def row_norms(a: Tensor) -> Tensor:
    """Return the lengths of rows, without squares that overflow or underflow."""
    largest = a.abs().amax(1, keepdim=True)
    largest = torch.where(largest > 0, largest, 1.0)
    norms: Tensor = largest[:, 0] * (a / largest).norm(dim=1)
    return norms


def balance(a: Tensor) -> Balanced:
    """Return the rows of A scaled to unit length; zero rows stay."""
    norms = row_norms(a)
    norms = torch.where(norms > 0, norms, 1.0)
    size = 1 / float(norms.min())
    return Balanced(a / norms[:, None], 1 / (norms * size), norms, size)
