"""How many directions a matrix uses."""

import torch
from torch import Tensor

from natgrad.diagnostics.inputs import check_real
from natgrad.linalg import default_rtol


def effective_rank(matrix: Tensor) -> Tensor:
    """Return exp(−Σ pᵢ log pᵢ), pᵢ = σᵢ/Σσ (Roy and Vetterli 2007), shape `(…)`.

    Between 1 and the rank; NaN for a zero matrix. [KMH21] Figures 3 and 5.

    Example:
        >>> round(float(effective_rank(torch.eye(3))), 5)
        3.0
    """
    check_real(matrix, "matrix", 2)
    s = torch.linalg.svdvals(matrix)
    p = s / s.sum(-1, keepdim=True)
    return torch.exp(-torch.xlogy(p, p).sum(-1))


def numerical_rank(matrix: Tensor, rtol: float | None = None) -> Tensor:
    """Return the number of singular values above rtol × the largest, shape `(…)`, integer.

    Args:
        matrix: Matrices, shape `(…, r, c)`.
        rtol: Cut-off; default the larger side × machine epsilon.

    Example:
        >>> int(numerical_rank(torch.ones(3, 4)))
        1
    """
    check_real(matrix, "matrix", 2)
    s = torch.linalg.svdvals(matrix)
    rtol = default_rtol(*matrix.shape[-2:], dtype=matrix.dtype) if rtol is None else rtol
    rank: Tensor = (s > rtol * s[..., :1]).sum(-1)
    return rank


def trace_norm(matrix: Tensor) -> Tensor:
    """Return the nuclear norm Σσᵢ, shape `(…)`; its least completion is `limits.nuclear_norm`.

    Example:
        >>> round(float(trace_norm(torch.tensor([[3.0, 0.0], [0.0, -4.0]]))), 5)
        7.0
    """
    check_real(matrix, "matrix", 2)
    norm: Tensor = torch.linalg.svdvals(matrix).sum(-1)
    return norm
