"""Second moments of rows, summed at the cost of half a matrix product."""

from typing import Self

import torch
from torch import Tensor

FEW_ROWS = 0.2
"""Rows up to this fraction of the side are worth keeping: they update an inverse for less than a
factorisation costs (the table of `inverses`)."""

# Rows of a block: small enough to skip most of the upper triangle, large enough for fast products.
_BLOCK = 128


def add_gram(total: Tensor, rows: Tensor, *, weight: float = 1.0, ones: bool = False) -> None:
    """Add weight · Σᵣ xᵣ xᵣᵀ to the lower triangle of `total`, in place.

    Only blocks on and below the diagonal are computed; what lies above stays meaningless, as in
    LAPACK. `symmetric` fills it in.

    Args:
        total: Shape `(n, n)`, or `(n + 1, n + 1)` with `ones`.
        rows: x, shape `(r, n)`.
        weight: Factor on the sum.
        ones: Append a one to every row.

    Example:
        >>> total = torch.zeros(3, 3)
        >>> add_gram(total, torch.tensor([[1.0, 2.0]]), ones=True)
        >>> symmetric(total)
        tensor([[1., 2., 1.],
                [2., 4., 2.],
                [1., 2., 1.]])
    """
    n = rows.shape[1]
    for start in range(0, n, _BLOCK):
        stop = min(start + _BLOCK, n)
        total[start:stop, :stop].addmm_(rows[:, start:stop].mT, rows[:, :stop], alpha=weight)
    if ones:
        total[n, :n].add_(rows.sum(0), alpha=weight)
        total[n, n] += weight * len(rows)


class Gram:
    """Σ x xᵀ over rows: the rows themselves while they are few, else their sum.

    Few rows change an average, and its inverse, without a matrix of their own.

    Args:
        rows: x, shape `(r, n)`.
        total: The sum, of which only the lower triangle has meaning; in other forms (a stack, a
            diagonal) for layers that have such.

    Example:
        >>> few = Gram.of(torch.ones(1, 5))
        >>> few.rows is not None, Gram.of(torch.ones(2, 5)).rows is None
        (True, True)
        >>> float(few.plus(few).summed()[0, 0])
        2.0
    """

    def __init__(self, *, rows: Tensor | None = None, total: Tensor | None = None) -> None:
        self.rows, self._total = rows, total

    @classmethod
    def of(cls, rows: Tensor, *, ones: bool = False) -> Self:
        """Return that of rows, with a one appended to each if asked."""
        side = rows.shape[1] + ones
        if len(rows) <= FEW_ROWS * side:
            return cls(rows=with_ones(rows) if ones else rows.clone())
        total = rows.new_zeros(side, side)
        add_gram(total, rows, ones=ones)
        return cls(total=total)

    def summed(self) -> Tensor:
        """Return the sum."""
        if self._total is None:
            assert self.rows is not None
            self._total = self.rows.new_zeros(self.rows.shape[1], self.rows.shape[1])
            add_gram(self._total, self.rows)
        return self._total

    def plus(self, other: "Gram") -> "Gram":
        """Return the sum of both."""
        return Gram(total=self.summed() + other.summed())

    def times(self, weight: float) -> "Gram":
        """Return a multiple."""
        if self.rows is not None and weight >= 0:
            return Gram(rows=self.rows * weight**0.5)
        return self if weight == 1 else Gram(total=self.summed() * weight)

    def blend(self, average: Tensor, weight: float) -> None:
        """Move an average, in place, towards this by a weight < 1."""
        if self.rows is None:
            average.lerp_(self.summed(), weight)
        elif len(self.rows) == 1:  # one pass
            average.addr_(self.rows[0], self.rows[0], beta=1 - weight, alpha=weight)
        else:
            add_gram(average.mul_(1 - weight), self.rows, weight=weight)


def with_ones(rows: Tensor) -> Tensor:
    """Return rows with a one appended to each."""
    return torch.cat([rows, rows.new_ones(*rows.shape[:-1], 1)], dim=-1)


def symmetric(lower: Tensor) -> Tensor:
    """Return the symmetric matrix that a lower triangle stands for."""
    return torch.tril(lower) + torch.tril(lower, -1).mT
