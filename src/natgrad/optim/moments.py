"""Second moments of rows, summed at the cost of half a matrix product."""

import torch
from torch import Tensor

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


def symmetric(lower: Tensor) -> Tensor:
    """Return the symmetric matrix that a lower triangle stands for."""
    return torch.tril(lower) + torch.tril(lower, -1).mT
