"""Dense linear algebra without any learning: least squares, graded weights, Kronecker sums."""

from natgrad.linalg._cholesky import cholesky
from natgrad.linalg._graded import graded_fisher_solve, graded_lstsq
from natgrad.linalg._kronecker import kronecker_lstsq, reachable
from natgrad.linalg._lstsq import LeastSquares, lstsq

__all__ = [
    "LeastSquares",
    "cholesky",
    "graded_fisher_solve",
    "graded_lstsq",
    "kronecker_lstsq",
    "lstsq",
    "reachable",
]
