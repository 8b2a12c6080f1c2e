"""Ways to invert a damped factor from its rows, its last inverse or its leading eigenvectors.

`inverse` has a table of their costs. Powers by eigenvectors are in `natgrad.linalg`.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from natgrad.linalg import cholesky
from natgrad.linalg._powers import decomposed
from natgrad.optim._curvature.factor import symmetric

# Largest relative error of a corrected product along an eigenvector.
_CORRECTED = 0.01


class Row:
    """(γI + xxᵀ)⁻¹ of a single row, [BLH18] §3: vectors, and no matrix.

    The part orthogonal to x is projected twice, and x is not normalized. Then the orthogonal part
    of x itself is exactly zero. Otherwise rounding errors over a small γ would exceed 1/(γ + |x|²).

    Args:
        x: Shape `(n, 1)`.
        ridge: γ > 0.

    Example:
        >>> Row(torch.tensor([[0.0], [2.0]]), 1.0).left(torch.ones(2, 1)).flatten()
        tensor([1.0000, 0.2000])
    """

    def __init__(self, x: Tensor, ridge: float) -> None:
        self.x, self.ridge = x, ridge
        self._square = x.mT @ x
        # A row of (nearly) zeros has no direction.
        tiny = torch.finfo(x.dtype).tiny
        self._unit = torch.where(self._square > tiny, self._square, math.inf)

    def left(self, g: Tensor) -> Tensor:
        """Return M g."""
        along = (self.x.mT @ g) / self._unit
        across = g - self.x @ along
        across = across - self.x @ ((self.x.mT @ across) / self._unit)
        return across / self.ridge + self.x @ (along / (self.ridge + self._square))

    def right(self, g: Tensor) -> Tensor:
        """Return g M."""
        return self.left(g.mT).mT


class LowRank:
    """U diag(s) Uᵀ + t I."""

    def __init__(self, vectors: Tensor, values: Tensor, rest: float) -> None:
        self.vectors, self.values, self.rest = vectors, values, rest

    def left(self, g: Tensor) -> Tensor:
        """Return M g."""
        return self.vectors @ (self.values[:, None] * (self.vectors.mT @ g)) + self.rest * g

    def right(self, g: Tensor) -> Tensor:
        """Return g M."""
        return ((g @ self.vectors) * self.values) @ self.vectors.mT + self.rest * g


def by_woodbury(inverse: Tensor, rows: Tensor, weight: float) -> Tensor:
    """Return ((1 − w) M + RᵀR)⁻¹ from M⁻¹, which it overwrites, for w < 1.

    Example:
        >>> by_woodbury(torch.eye(2), torch.tensor([[1.0, 0.0]]), 0.5)
        tensor([[0.6667, 0.0000],
                [0.0000, 2.0000]])
    """
    if len(rows) == 1:  # Sherman–Morrison, in one pass over the inverse
        v, kept_weight = inverse @ rows[0], 1 - weight
        scale = kept_weight * (kept_weight + float(rows[0] @ v))
        return inverse.addr_(v, v, beta=1 / kept_weight, alpha=-1 / scale)
    kept = inverse.div_(1 - weight)
    along = rows @ kept
    small = along @ rows.mT
    small.diagonal().add_(1.0)
    lower = cholesky(small, name="a Woodbury update")
    half = torch.linalg.solve_triangular(lower.to(along), along, upper=False)
    return kept.addmm_(half.mT, half, alpha=-1.0)


def corrected(
    product: Callable[[Tensor], Tensor], g: Tensor, ridge: float, wanted: float
) -> Tensor:
    """Return (M + γI)⁻¹ g, within 1 % along every eigenvector, from products with (M + γ₀I)⁻¹.

    With X = (M + γ₀I)⁻¹ and δ = γ − γ₀ the answer y solves (I + δX) y = X g, whose eigenvalues lie
    between 1 and γ/γ₀. Chebyshev's iteration uses these bounds, and needs no inner products. With k
    more products the error is at most 1/T of degree k + 1 at (γ + γ₀)/|γ − γ₀|. So there are none
    up to γ/γ₀ = 1.02, one up to 1.32, two up to 1.99, three up to 2.97.

    Args:
        product: g ↦ X g, or g X.
        g: A vector or matrix.
        ridge: γ₀ > 0.
        wanted: γ > 0.

    Example:
        >>> g = torch.ones(2, dtype=torch.float64)
        >>> values = torch.tensor([0.0, 3.0], dtype=torch.float64)
        >>> corrected(lambda v: v / (values + 1.0), g, 1.0, 1.5) * (values + 1.5)
        tensor([1.0021, 1.0021], dtype=torch.float64)
    """
    middle, half = (wanted / ridge + 1) / 2, abs(wanted / ridge - 1) / 2
    residual = product(g)
    found = step = residual / middle
    first = turn = left = half / middle  # left: 1/T
    while left > _CORRECTED:
        residual = residual - step - (wanted - ridge) * product(step)
        before, turn = turn, 1 / (2 / first - turn)
        step = turn * before * step + 2 * turn / half * residual
        found, left = found + step, left * turn
    return found


def by_low_rank(matrix: Tensor, ridge: float, rank: int) -> LowRank:
    """Return (Λ + γI)⁻¹ with the `rank` leading eigenvectors, the rest by their mean.

    A randomized range finder with two power iterations (Halko et al. 2011).
    """
    full = symmetric(matrix)
    n = len(full)
    source = torch.Generator(full.device).manual_seed(0)
    block = torch.randn(n, min(rank + 8, n), dtype=full.dtype, device=full.device, generator=source)
    for _ in range(3):
        block = torch.linalg.qr(full @ block)[0]
    values, inside = decomposed(block.mT @ full @ block)
    values, vectors = values[-rank:].clamp(min=0), block @ inside[:, -rank:]
    tail = max(float(full.diagonal().sum() - values.sum()), 0.0) / max(n - rank, 1)
    rest = 1 / (tail + ridge)
    return LowRank(vectors, 1 / (values + ridge) - rest, rest)
