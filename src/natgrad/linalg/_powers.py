"""Powers of positive semi-definite matrices, such as Kronecker factors: inverses and their roots.

The inverse of a Kronecker product is the product of the factors' inverses, and so are its roots:
(A ⊗ G)^power on a matrix V is A^power V G^power.
"""

import torch
from torch import Tensor

from natgrad.linalg._precision import default_rtol, widen


def decomposed(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors of the lower triangle of Λ, or of a stack of them.

    On the CPU, `eigh` of a stack can return NaN for a finite matrix with empty rows, which it
    decomposes correctly when it is alone. Then each matrix is decomposed alone, in double
    precision.

    Example:
        >>> decomposed(torch.diag(torch.tensor([3.0, 4.0])))[0]
        tensor([3., 4.])
    """
    values, vectors = torch.linalg.eigh(matrix)
    if bool(torch.isfinite(values).all()):
        return values, vectors
    alone = [torch.linalg.eigh(each) for each in widen(matrix).reshape(-1, *matrix.shape[-2:])]
    values = torch.stack([found[0] for found in alone]).reshape(values.shape)
    vectors = torch.stack([found[1] for found in alone]).reshape(vectors.shape)
    return values.to(matrix), vectors.to(matrix)


def damped_power(matrix: Tensor, ridge: float, power: float = -1.0) -> Tensor:
    """Return (Λ + γI)^power from the lower triangle of Λ; without a ridge, on Λ's range.

    Args:
        matrix: Λ, positive semi-definite, or a stack of such matrices.
        ridge: γ ≥ 0.
        power: −1 for the inverse, −½ for its root.

    Example:
        >>> damped_power(torch.diag(torch.tensor([0.0, 4.0])), 0.0, -0.5)
        tensor([[0.0000, 0.0000],
                [0.0000, 0.5000]])
    """
    return from_eigen(*decomposed(matrix), ridge, power)


def from_eigen(values: Tensor, vectors: Tensor, ridge: float, power: float = -1.0) -> Tensor:
    """Return (Λ + γI)^power from Λ's eigenvalues and eigenvectors.

    Example:
        >>> from_eigen(torch.tensor([0.0, 3.0]), torch.eye(2), 1.0).diagonal()
        tensor([1.0000, 0.2500])
    """
    cut = default_rtol(values.shape[-1], dtype=values.dtype) * values[..., -1:]
    values = power_of(torch.where(values > cut, values, 0.0) + ridge, power)
    out: Tensor = (vectors * values[..., None, :]) @ vectors.mT
    return out


def power_of(values: Tensor, power: float) -> Tensor:
    """Return values to a power, zero where they are not positive.

    Example:
        >>> power_of(torch.tensor([0.0, 4.0]), -0.5)
        tensor([0.0000, 0.5000])
    """
    return torch.where(values > 0, values**power, 0.0)
