"""Ranks of a matrix, and its nuclear norm."""

import torch
from torch import Tensor

from natgrad._checks import number
from natgrad._named import named
from natgrad.diagnostics._inputs import check_real, fits
from natgrad.linalg._precision import default_rtol


@named
def effective_rank(matrix: Tensor) -> Tensor:
    """Return exp(−Σ pᵢ log pᵢ), pᵢ = σᵢ/Σσ (Roy and Vetterli 2007), shape `(…)`.

    The effective rank is between 1 and the rank; NaN for a zero matrix. [KMH21] Figures 3 and 5.

    Example:
        >>> round(float(effective_rank(torch.eye(3))), 5)
        3.0
    """
    s = _singular_values(matrix)[0]
    p = s / s.sum(-1, keepdim=True)
    return torch.exp(-torch.xlogy(p, p).sum(-1))


@named
def numerical_rank(matrix: Tensor, rtol: float | None = None) -> Tensor:
    """Return the number of singular values above rtol × the largest, shape `(…)`, integer.

    Singular values are those of the matrix as given: unlike `lstsq`, no column is rescaled.

    Args:
        matrix: Matrices, shape `(…, r, c)`.
        rtol: Cut-off; by default the larger side × machine epsilon.

    Example:
        >>> int(numerical_rank(torch.ones(3, 4)))
        1
    """
    rtol = None if rtol is None else number(rtol, "rtol", low=0, high=1, high_open=True)
    s = _singular_values(matrix)[0]
    rtol = default_rtol(*matrix.shape[-2:], dtype=s.dtype) if rtol is None else rtol
    rank: Tensor = (s > rtol * s[..., :1]).sum(-1)
    return rank


@named
def trace_norm(matrix: Tensor) -> Tensor:
    """Return the nuclear norm Σσᵢ, shape `(…)`; `limits.nuclear_norm` minimizes it.

    Example:
        >>> round(float(trace_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))), 5)
        7.0
    """
    s, size = _singular_values(matrix)
    return fits(s.sum(-1) * size, "the nuclear norm")


def _singular_values(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return singular values of matrices scaled to a largest entry of one, and that entry."""
    matrix = check_real(matrix, "matrix", 2)
    size = matrix.abs().amax((-2, -1))
    safe = torch.where(size > 0, size, 1.0)
    return torch.linalg.svdvals(matrix / safe[..., None, None]), size
