"""Weighted least squares in multiple precision: rank by exact fractions, then mpmath."""

from collections.abc import Sequence
from fractions import Fraction

import mpmath
import torch
from torch import Tensor


def row_space(rows: Sequence[Sequence[float]]) -> list[list[Fraction]]:
    """An exact basis of the span of the rows, by elimination in fractions."""
    basis: list[tuple[int, list[Fraction]]] = []
    for row in rows:
        left = [Fraction(x) for x in row]
        for pivot, b in basis:
            if left[pivot]:
                factor = left[pivot] / b[pivot]
                left = [x - factor * y for x, y in zip(left, b, strict=True)]
        pivot = next((i for i, x in enumerate(left) if x), None)
        if pivot is not None:
            basis.append((pivot, left))
    return [b for _, b in basis]


def _digits(*logs: Tensor) -> int:
    joined = torch.cat([2 * t.double().flatten() for t in logs])
    return 100 + int(float(joined.max() - joined.min()) / 2.3)


def exact_fisher_solve(
    a: Tensor, log_weight: Tensor, g: Tensor, g_log_weight: Tensor, c: Tensor
) -> tuple[list[mpmath.mpf], int]:
    """F⁺ d with F = Σ e^{2ℓ} a aᵀ and d = Σ e^{2m} g c, and the rank of F."""
    with mpmath.workdps(_digits(log_weight, g_log_weight)):
        basis = row_space(a.double().tolist())
        if not basis:
            return [mpmath.mpf(0)] * a.shape[1], 0
        b = mpmath.matrix([[mpmath.mpf(x.numerator) / x.denominator for x in r] for r in basis])
        rows = mpmath.matrix(a.double().tolist()) * b.T
        top = float(log_weight.max())
        heavy = mpmath.matrix(rows)
        for i, ell in enumerate(log_weight.double().tolist()):
            weight = mpmath.exp(2 * (mpmath.mpf(ell) - top))
            for j in range(rows.cols):
                heavy[i, j] *= weight
        descent = mpmath.zeros(len(basis), 1)
        gradient_rows = mpmath.matrix(g.double().tolist()) * b.T
        for n, m in enumerate(g_log_weight.double().tolist()):
            weight = mpmath.exp(2 * (mpmath.mpf(m) - top)) * mpmath.mpf(float(c[n]))
            for j in range(len(basis)):
                descent[j] += weight * gradient_rows[n, j]
        z = mpmath.lu_solve(rows.T * heavy, descent)
        return list(b.T * z), len(basis)


def exact_graded(a: Tensor, b: Tensor, log_weight: Tensor) -> tuple[Tensor, int]:
    """The shortest minimizer of Σ e^{2ℓ} (a·v − b)², and the rank of the rows."""
    v, rank = exact_fisher_solve(a, log_weight, a, log_weight, b)
    return torch.tensor([float(x) for x in v], dtype=torch.float64), rank
