"""Linear regression without a penalty: ordinary, shortest, and sparsest interpolant."""

import time
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from natgrad._checks import choice, number
from natgrad._named import named
from natgrad._renamed import renamed
from natgrad.errors import ConvergenceError, InvalidInputError, RankDeficientError
from natgrad.limits._inputs import check_design, check_targets
from natgrad.limits._result import Limit, finish
from natgrad.limits._solvers.one_norm import one_norm_equal
from natgrad.limits._solvers.scaling import scaled, unit_columns, unit_size
from natgrad.linalg import lstsq
from natgrad.linalg._columns import times_power
from natgrad.linalg._lstsq import require_finite
from natgrad.linalg._precision import default_rtol

Kind = Literal["ordinary", "minimum_norm"]


@named
def least_squares(x: Tensor, y: Tensor, kind: Kind = "minimum_norm") -> Limit:
    """Return argmin ‖Xβ − y‖: the unique minimizer, or the shortest one (ridgeless regression).

    Both agree for X of full column rank. The shortest minimizer, X⁺y, is the limit of ridge
    regression as its penalty vanishes, and of gradient flow from zero. For n ≤ d, full row rank and
    y = ±1 it is also the limit direction of natural gradient flow ([KMH21] Theorem 3).

    Args:
        x: Inputs, shape `(n, d)`.
        y: Targets, shape `(n,)`.
        kind: `"minimum_norm"` (default), or `"ordinary"`, which refuses rank-deficient X.

    Returns:
        Limit: `value` is ‖Xβ − y‖, `certificate` is ‖Xᵀ(Xβ − y)‖ / (‖X‖ ‖y‖) with the columns of X
        scaled to one size.

    Raises:
        RankDeficientError: If kind is `"ordinary"` and the rank of X is below d.

    Example:
        >>> x = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
        >>> [round(v, 12) for v in least_squares(x, torch.tensor([1.0]).double()).solution.tolist()]
        [0.5, 0.5]
    """
    began = time.perf_counter()
    choice(kind, "kind", get_args(Kind))
    a, b = check_design(x), check_targets(y, x)
    require_finite(b, "y")
    fit = lstsq(a, b, rounded=x.dtype)
    unique = fit.rank == a.shape[1]
    if kind == "ordinary" and not unique:
        raise RankDeficientError(
            f"ordinary least squares needs X of full column rank, but its rank is {fit.rank} < "
            f"{a.shape[1]}. Use kind='minimum_norm' for the shortest solution."
        )
    (unit, columns), (goal, size) = unit_columns(a), unit_size(b)
    residual = unit @ times_power(fit.solution, columns - size) - goal
    length = float(unit.norm()) * float(goal.norm())
    certificate = float((unit.mT @ residual).norm()) / (length or 1.0)
    limit = Limit(
        fit.solution,
        scaled(float(residual.norm()), size),
        certificate,
        "relative gradient",
        "natgrad.linalg.lstsq",
        unique=unique,
    )
    return finish(limit, x, time.perf_counter() - began)


@renamed(tolerance="rtol")
@named
def basis_pursuit(x: Tensor, y: Tensor, *, rtol: float = 1e-9) -> Limit:
    """Return argmin ‖β‖₁ subject to Xβ = y: the interpolant that depth 2 prefers.

    Mehrotra's interior-point method solves the dual, max y·ν subject to |Xᵀν| ≤ 1, and then the
    vertex is solved exactly. The certificate is the relative gap ‖β‖₁ − y·ν/‖Xᵀν‖_∞, including the
    relative residual of Xβ = y.

    Args:
        x: Inputs, shape `(n, d)`.
        y: Targets, shape `(n,)`.
        rtol: Largest certificate accepted.

    Returns:
        Limit: `value` is ‖β‖₁, `dual` is ν, scaled to ‖Xᵀν‖_∞ = 1.

    Raises:
        InvalidInputError: If no β interpolates.
        ConvergenceError: If the certificate stays above `rtol`.

    Example:
        >>> x = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
        >>> [round(v, 9) for v in basis_pursuit(x, torch.tensor([1.0]).double()).solution.tolist()]
        [0.0, 0.5]
    """
    began = time.perf_counter()
    rtol = number(rtol, "rtol", low=0)
    a, f = check_design(x), check_targets(y, x)
    require_finite(f, "y")
    unit, _ = unit_columns(a)
    (a, size), (f, scale) = unit_size(a), unit_size(f)
    u, s, _ = torch.linalg.svd(unit, full_matrices=False)
    rank = int((s > default_rtol(*a.shape, dtype=x.dtype) * float(s[0])).sum())
    left = u[:, :rank]
    miss = float((f - left @ (left.mT @ f)).norm()) / (float(f.norm()) or 1.0)
    if miss > default_rtol(*a.shape, dtype=x.dtype) * 10:
        raise InvalidInputError(
            f"no β has Xβ = y: the nearest misses by {miss:.1e} of ‖y‖ (X has rank {rank} and "
            f"{len(a)} rows). Use limits.least_squares."
        )
    if float(f.norm()) == 0:
        zero = Limit(a.new_zeros(a.shape[1]), 0.0, 0.0, "relative duality gap", "zero", dual=0 * f)
        return finish(zero, x, time.perf_counter() - began)
    rows, goal = (a, f) if rank == len(a) else (left.mT @ a, left.mT @ f)  # independent rows
    b, nu = one_norm_equal(rows, goal)
    limit = _pursuit(a, f, b, nu if rank == len(a) else left @ nu, rtol)
    assert limit.dual is not None
    limit = replace(
        limit,
        solution=times_power(limit.solution, scale - size),
        dual=times_power(limit.dual, -size),
        value=scaled(limit.value, scale - size),
    )
    return finish(limit, x, time.perf_counter() - began)


def _pursuit(a: Tensor, f: Tensor, b: Tensor, nu: Tensor, rtol: float) -> Limit:
    nu = nu / float((a.mT @ nu).abs().max())
    norm = float(b.abs().sum())
    miss = float((a @ b - f).norm()) / float(f.norm())
    certificate = max(0.0, 1 - float(f @ nu) / norm) + miss
    if not certificate <= rtol:
        raise ConvergenceError(
            f"basis pursuit was solved only to {certificate:.1e} relative. Rescale features to "
            "comparable sizes, or raise rtol."
        )
    name, solver = "relative duality gap", "interior point, vertex"
    return Limit(b, norm, certificate, name, solver, dual=nu, basis=b.nonzero()[:, 0])
