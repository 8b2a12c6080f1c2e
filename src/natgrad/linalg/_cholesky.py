"""Cholesky factors that fall back to double precision before giving up."""

import torch
from torch import Tensor

from natgrad._checks import tensor
from natgrad._named import named
from natgrad.errors import RankDeficientError, ShapeError
from natgrad.linalg._precision import widen


def check_covariance(matrix: Tensor, name: str) -> None:
    """Raise a typed error unless the matrix is finite, symmetric and positive definite."""
    tensor(matrix, name, empty=True)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or matrix.numel() == 0:
        raise ShapeError(
            f"{name} must be square and not empty, but has shape {tuple(matrix.shape)}."
        )
    if not torch.allclose(matrix, matrix.mT, rtol=1e-5, atol=1e-8 * float(matrix.abs().max())):
        raise ShapeError(f"{name} must be symmetric; try (c + c.T) / 2.")
    cholesky(matrix, name=name, hint="Add a multiple of the identity, or drop a variable.")


@named
def cholesky(
    matrix: Tensor, *, name: str = "the matrix", hint: str = "Try a positive damping."
) -> Tensor:
    """Return lower-triangular L with L Lᵀ = matrix, retrying in double precision.

    Args:
        matrix: Symmetric positive-definite, shape `(n, n)`.
        name: Name of the matrix in errors.
        hint: Advice that ends an error.

    Returns:
        The factor, in the matrix's dtype, or in float64 if only double precision succeeds.

    Raises:
        NonFiniteError: If the matrix holds NaN or an infinity.
        RankDeficientError: If it is not positive definite even in double precision.

    Example:
        >>> cholesky(torch.tensor([[4.0, 2.0], [2.0, 2.0]]))
        tensor([[2., 0.],
                [1., 1.]])
    """
    tensor(matrix, name, shape=("n", "n"))
    if matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"{name} must be square, but has shape {tuple(matrix.shape)}.")
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    if not int(info):
        return factor
    wide = widen(matrix)
    factor, info = torch.linalg.cholesky_ex(wide)
    if int(info):
        smallest, largest = torch.linalg.eigvalsh(wide)[[0, -1]].tolist()
        raise RankDeficientError(
            f"{name} must be positive definite, but its leading minor of order {int(info)} is not "
            f"(eigenvalues from {smallest:.2e} to {largest:.2e}). {hint}"
        )
    return factor
