"""Minimum-norm least squares that is accurate on rank-deficient systems."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import all_finite, number, tensor
from natgrad._checks import dtype as check_dtype
from natgrad._checks import require_finite as require_finite
from natgrad._named import named
from natgrad.errors import DtypeError, ShapeError, VelocityOverflowError
from natgrad.linalg._columns import column_exponents, times_power
from natgrad.linalg._graded_basis import GradedBasis
from natgrad.linalg._precision import default_rtol, widen

# Refinement gains two digits per step while a Gram matrix's condition is below this times 1/eps.
_SAFE_GRAM_CONDITION = 1e-2
_REFINEMENTS = 8


@dataclass(frozen=True)
class LeastSquares:
    """The result of `lstsq`.

    Attributes:
        solution: The shortest minimizer, shape `(n,)` or `(n, k)` like the right-hand side.
        rank: Number of singular values above the cut-off, with columns scaled to one size.
        rtol: The cut-off used, relative to the largest singular value.

    Example:
        >>> lstsq(torch.eye(2), torch.ones(2)).rank
        2
    """

    solution: Tensor
    rank: int
    rtol: float


@named
def lstsq(
    a: Tensor, b: Tensor, *, rtol: float | None = None, rounded: torch.dtype | None = None
) -> LeastSquares:
    """Return the shortest x that minimizes ‖a x − b‖, with the rank of `a`.

    Well-conditioned systems are solved by the Gram matrix of the shorter side and a few steps of
    refinement on the true residual (corrected semi-normal equations). All others are solved by a
    singular value decomposition with an explicit cut-off, so that the answer does not depend on the
    LAPACK driver. Columns of different sizes are first scaled to one size, so that the rank does
    not depend on the units of a feature; x is still the shortest for the columns as given.

    Args:
        a: Matrix, shape `(m, n)`.
        b: Right-hand side, shape `(m,)` or `(m, k)`.
        rtol: Singular values of the matrix as given at or below `rtol` × the largest count as zero.
            Default: `max(m, n)` × machine epsilon, with columns of one size.
        rounded: The dtype to which the data were rounded earlier; its epsilon sets the default
            `rtol`.

    Raises:
        ShapeError: If the shapes do not fit.
        NonFiniteError: If `a` or `b` holds NaN or an infinity.
        VelocityOverflowError: If the solution overflows the dtype.

    Example:
        >>> a = torch.tensor([[1.0, 1.0], [2.0, 2.0]], dtype=torch.float64)
        >>> fit = lstsq(a, torch.tensor([1.0, 2.0], dtype=torch.float64))
        >>> fit.rank, [round(x, 12) for x in fit.solution.tolist()]
        (1, [0.5, 0.5])
    """
    for name, given in (("the matrix", a), ("the right-hand side", b)):
        tensor(given, f"{name} of a least-squares problem", empty=True)
    if a.dtype != b.dtype:
        raise DtypeError(f"lstsq got a matrix of {a.dtype} and a right-hand side of {b.dtype}.")
    if a.ndim != 2 or b.ndim not in (1, 2) or b.shape[0] != a.shape[0]:
        raise ShapeError(
            "lstsq expects a matrix (m, n) and a right-hand side (m,) or (m, k), but got "
            f"{tuple(a.shape)} and {tuple(b.shape)}."
        )
    if rtol is not None:
        rtol = number(rtol, "rtol", low=0, high=1, high_open=True)
    if rounded is not None:
        rounded = check_dtype(rounded, "rounded")
    fit = bare_lstsq(a, b, rtol=rtol, rounded=rounded)
    if not all_finite(fit.solution):
        raise VelocityOverflowError(
            f"the least-squares solution overflows {a.dtype}. Use a wider dtype, or rescale the "
            "system."
        )
    return fit


def bare_lstsq(
    a: Tensor, b: Tensor, *, rtol: float | None = None, rounded: torch.dtype | None = None
) -> LeastSquares:
    """Return `lstsq` of valid arguments without checks; the solution may overflow."""
    own = rtol is None
    rtol = default_rtol(*a.shape, dtype=rounded or a.dtype) if rtol is None else rtol
    rhs = b[:, None] if b.ndim == 1 else b
    size_a, size_b = _power_of_two(a), _power_of_two(rhs)
    if 0 in a.shape or size_a == 0 or size_b == 0:
        scaled = a.new_zeros(a.shape[1], rhs.shape[1])
        rank = 0 if 0 in a.shape or size_a == 0 else _by_svd(a / size_a, rhs, rtol)[1]
        return LeastSquares(scaled[:, 0] if b.ndim == 1 else scaled, rank, rtol)
    exponents = column_exponents(a) if own else None
    solution, rank = _scaled(a, rhs, (size_a, size_b), exponents, rtol)
    return LeastSquares(solution[:, 0] if b.ndim == 1 else solution, rank, rtol)


def _scaled(
    a: Tensor, b: Tensor, sizes: tuple[float, float], exponents: Tensor | None, rtol: float
) -> tuple[Tensor, int]:
    """Return the shortest solution and the rank, given sizes of both sides as powers of two."""
    size_a, size_b = sizes
    unit_b = b / size_b
    tall = a.shape[0] >= a.shape[1]
    if exponents is None or not tall:
        fast = _semi_normal(a / size_a, unit_b, rtol)
        if fast is not None:
            return fast * (size_b / size_a), min(a.shape)
    if exponents is None:
        x, rank = _by_svd(a / size_a, unit_b, rtol)
        return x * (size_b / size_a), rank
    unit, shift = times_power(a, -exponents), math.log2(size_b) - exponents
    if tall:
        fast = _semi_normal(unit, unit_b, rtol)
        x, rank = (fast, a.shape[1]) if fast is not None else _by_svd(unit, unit_b, rtol)
        if rank == a.shape[1]:  # the solution is unique, whatever the metric
            return times_power(x, shift[:, None]), rank
    return _by_columns(unit, exponents, unit_b, shift, rtol)


def _by_columns(
    unit: Tensor, exponents: Tensor, b: Tensor, shift: Tensor, rtol: float
) -> tuple[Tensor, int]:
    """Return the shortest x with A x = b nearest, for A = `unit` · 2^e, and the rank of `unit`.

    The largest independent columns are a basis B, and every other column is a combination
    âᵢ = Σⱼ tᵢⱼ âⱼ of larger ones. With w = 2^e x the equation is w_B + Tᵀ w_N = z, where
    Â_B z = b, and the shortest x has xᵢ = Σⱼ tᵢⱼ 2^{eᵢ − eⱼ} xⱼ outside B, with ratios ≤ 1. Hence
    (I + TᵀM) w_B = z with M as in `_graded`, for columns instead of rows.
    """
    # Remainders of a pivoted QR have rounding errors of several windows: eight cut-offs, as there.
    basis = GradedBasis.of(unit.mT, math.log(2) * exponents, 8 * rtol)
    wide, columns = widen(b).to(basis.q.device), widen(unit).to(basis.q.device)[:, basis.inside]
    z = torch.linalg.solve(basis.s.mT, basis.q.mT @ wide)
    z = z + torch.linalg.solve(basis.s.mT, basis.q.mT @ (wide - columns @ z))
    w = basis.solve(lambda w: z - w - basis.t.mT @ (basis.m @ w), start=z, adjoint=True)
    e = exponents.to(basis.q.device)
    ratio = torch.exp2(e[basis.outside, None] - e[None, basis.inside])
    x = w.new_zeros(unit.shape[1], b.shape[1])
    x[basis.inside] = times_power(w, shift.to(e.device)[basis.inside, None])
    x[basis.outside] = (basis.t * ratio) @ x[basis.inside]
    return x.to(b), len(basis.inside)


def _power_of_two(x: Tensor) -> float:
    """Return the power of two next to the largest entry; scaling by it does not round."""
    largest = float(x.abs().max()) if x.numel() else 0.0
    return 2.0 ** (math.frexp(largest)[1] - 1) if largest else 0.0


def _semi_normal(a: Tensor, b: Tensor, rtol: float) -> Tensor | None:
    """Solve by the Gram matrix if that is provably safe, else return None."""
    tall = a.shape[0] >= a.shape[1]
    gram = a.mT @ a if tall else a @ a.mT
    inverse = gram_inverse(gram)
    limit = _SAFE_GRAM_CONDITION / torch.finfo(a.dtype).eps
    if inverse is None or condition(gram, inverse) > min(limit, 1 / max(rtol, 1e-150) ** 2):
        return None
    x, change, eps = a.new_zeros(a.shape[1], b.shape[1]), math.inf, torch.finfo(a.dtype).eps
    for _ in range(_REFINEMENTS):
        residual = b - a @ x
        step = inverse @ (a.mT @ residual) if tall else a.mT @ (inverse @ residual)
        x = x + step
        previous, change = change, float(step.abs().max())
        if change <= 4 * eps * float(x.abs().max()):
            return x
        if change > 0.5 * previous:
            break
    return x if change <= 64 * eps * float(x.abs().max()) else None


def gram_inverse(gram: Tensor) -> Tensor | None:
    """Return the inverse of a positive-definite matrix, or None if Cholesky fails."""
    factor, info = torch.linalg.cholesky_ex(gram)
    return None if int(info) else torch.cholesky_inverse(factor)


def condition(matrix: Tensor, inverse: Tensor) -> float:
    """Return the 1-norm condition number of a matrix whose inverse is known."""
    one_norm = matrix.abs().sum(0).max() * inverse.abs().sum(0).max()
    return float(one_norm)


def _by_svd(a: Tensor, b: Tensor, rtol: float) -> tuple[Tensor, int]:
    u, s, vh = torch.linalg.svd(a, full_matrices=False)
    rank = int((s > rtol * s[0]).sum())
    return vh[:rank].mT @ ((u[:, :rank].mT @ b) / s[:rank, None]), rank
