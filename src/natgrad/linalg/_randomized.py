"""Pseudo-inverses by a randomized singular value decomposition."""

import torch
from torch import Tensor

from natgrad.errors import InvalidInputError, ShapeError
from natgrad.linalg._lstsq import require_finite
from natgrad.linalg._precision import default_rtol

_EXTRA = 8  # extra columns, which make a failure improbable
_POWERS = 2  # applications of A Aᵀ, which damp the rest of the spectrum


def randomized_pinv(
    a: Tensor, rank: int, *, rtol: float | None = None, generator: torch.Generator | None = None
) -> Tensor:
    """Return the Moore–Penrose pseudo-inverse of the best approximation of rank `rank` to `a`.

    [BLH18] §7 proposes it for (10). The range of A is found by applying A to a few random vectors
    (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1), and only a matrix with that few rows
    is decomposed: m n · rank operations instead of m n · min(m, n). The result is exact up to
    rounding if A has no more than `rank` singular values above the cut-off, as after a bottleneck.

    Args:
        a: Shape `(m, n)`.
        rank: Number of singular values to keep.
        rtol: Singular values below this fraction of the largest count as zero.
        generator: Source of the random vectors; by default a new one with seed 0.

    Raises:
        ShapeError: If `a` is not a matrix.
        InvalidInputError: If the rank is not between 1 and the smaller side.
        NonFiniteError: If `a` holds NaN or an infinity.

    Example:
        >>> randomized_pinv(torch.diag(torch.tensor([4.0, 2.0, 0.0])), rank=2).diagonal()
        tensor([0.2500, 0.5000, 0.0000])
    """
    if a.ndim != 2 or 0 in a.shape:
        raise ShapeError(f"a must be a matrix with entries, but has shape {tuple(a.shape)}.")
    side = min(a.shape)
    if type(rank) is not int or not 1 <= rank <= side:
        raise InvalidInputError(f"rank must be an integer from 1 to {side}, but is {rank!r}.")
    require_finite(a, "a")
    source = torch.Generator(a.device).manual_seed(0) if generator is None else generator
    start = torch.randn(
        a.shape[1], min(rank + _EXTRA, side), dtype=a.dtype, device=a.device, generator=source
    )
    basis = torch.linalg.qr(a @ start)[0]
    for _ in range(_POWERS):
        basis = torch.linalg.qr(a @ torch.linalg.qr(a.mT @ basis)[0])[0]
    u, s, vh = torch.linalg.svd(basis.mT @ a, full_matrices=False)
    cut = default_rtol(*a.shape, dtype=a.dtype) if rtol is None else rtol
    kept = (s > cut * s[0]) & (torch.arange(len(s), device=a.device) < rank)
    inverse = torch.where(kept, 1 / torch.where(kept, s, 1.0), 0.0)
    out: Tensor = (vh.mT * inverse) @ (basis @ u).mT
    return out
