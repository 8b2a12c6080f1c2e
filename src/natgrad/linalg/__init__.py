"""Dense kernels that know no learning: least squares, graded weights, Kronecker sums."""

from natgrad.linalg.cholesky import cholesky
from natgrad.linalg.graded import graded_fisher_solve, graded_lstsq
from natgrad.linalg.kronecker import kronecker_lstsq, reachable
from natgrad.linalg.lstsq import LeastSquares, default_rtol, lstsq, widen

__all__ = [
    "LeastSquares",
    "cholesky",
    "default_rtol",
    "graded_fisher_solve",
    "graded_lstsq",
    "kronecker_lstsq",
    "lstsq",
    "reachable",
    "widen",
]
