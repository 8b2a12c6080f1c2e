"""Inverses of Kronecker factors: roots of a factor, and both factors at once."""

import torch
from torch import Tensor

from natgrad.linalg._precision import default_rtol, widen


def inverse_root(matrix: Tensor, order: int, eps: float = 0.0) -> Tensor:
    """Return the pseudo-inverse root M^{−1/order} of a positive semi-definite matrix.

    Args:
        matrix: M, shape `(n, n)`.
        order: 1 is the pseudo-inverse.
        eps: Added to the eigenvalues, relative to the largest; without it those at rounding are
            left out.

    Example:
        >>> inverse_root(torch.diag(torch.tensor([16.0, 0.0])), 4)
        tensor([[0.5000, 0.0000],
                [0.0000, 0.0000]])
    """
    values, vectors = torch.linalg.eigh(widen(matrix))
    top = float(values[-1].clamp(min=0))
    values = values.clamp(min=0) + eps * top
    kept = values > default_rtol(len(matrix), dtype=torch.float64) * top
    roots = torch.where(kept, values, 1.0) ** (-1 / order)
    found: Tensor = (vectors * torch.where(kept, roots, 0.0)) @ vectors.mT
    return found.to(matrix)


def kronecker_solve(
    a: Tensor, g: Tensor, v: Tensor, damping: float = 0.0, damping_g: float = 0.0
) -> Tensor:
    """Return (A + λ)⁻¹ V (G + μ)⁻¹, the solution of (A + λ) ⊗ (G + μ) on the matrix V.

    Without damping of a factor its inverse is the pseudo-inverse.

    Args:
        a: A, shape `(d, d)`, positive semi-definite.
        g: G, shape `(k, k)`, positive semi-definite.
        v: V, shape `(d, k)`.
        damping: λ ≥ 0.
        damping_g: μ ≥ 0.

    Example:
        >>> kronecker_solve(2 * torch.eye(2), torch.tensor([[3.0]]), torch.ones(2, 1), 0.0, 1.0)
        tensor([[0.1250],
                [0.1250]])
    """
    return _inverse(a, damping) @ v @ _inverse(g, damping_g)


def _inverse(matrix: Tensor, damping: float) -> Tensor:
    shift = damping * torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device)
    return inverse_root(matrix + shift, 1)
