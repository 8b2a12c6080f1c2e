"""The direction to which natural gradient flow of logistic regression tends: a linear program.

For logistic loss the Fisher is the Hessian, so natural gradient flow is Newton flow and
X̃ᵀσ(−X̃β(t)) = e^{−t} c with c = X̃ᵀσ(−X̃β(0)). Hence β(t) = argmin Σ softplus(−u) + e^{−t} c·β.
This is the exponential-penalty path of min c·b subject to X̃b ≥ 1 (Cominetti and San Martín, Math.
Programming 67, 1994), and β(t)/t tends to a solution of that program.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import softplus

from natgrad._named import named
from natgrad.errors import ConvergenceError, VelocityOverflowError
from natgrad.limits._inputs import check_start, rank_and_basis, signed_rows
from natgrad.limits._result import Limit, finish
from natgrad.limits._separability import refuse, separate
from natgrad.limits._solvers.centroid import centroid, descend_face
from natgrad.limits._solvers.highs import least_cost
from natgrad.limits._solvers.interior import interior_point
from natgrad.limits._solvers.polish import project
from natgrad.limits._solvers.programs import Rows
from natgrad.limits._solvers.scaling import balance, unit_columns
from natgrad.linalg import lstsq
from natgrad.linalg._columns import times_power

_INSTEAD = {
    "not separable": "The flow ends at the finite minimizer of the logistic loss instead: find it "
    "by Newton's method.",
}


@named
def natural_flow(x: Tensor, y: Tensor, beta0: Tensor | None = None) -> Limit:
    """Return b = lim β(t)/t along natural gradient flow, a solution of min c·b, X̃b ≥ 1.

    Here c = X̃ᵀσ(−X̃β₀) from the initial β₀; for β₀ = 0, c = ½X̃ᵀ1. Then β(t) = t b + O(1).

    - Independent rows (n ≤ d): the shortest interpolant X̃⁺1. [KMH21] Theorem 3.
    - Otherwise a vertex, by an interior-point method and the linear system of its basis. If that
      fails, HiGHS is used.
    - Rank-deficient X: the program is solved in the span of the data, where the flow stays.
    - Several optima (`unique` false): the centroid of the optimal face, to which the path tends.
    - Quasi-separable data: rows that no b can separate become X̃ₙb = 0; logits there stay finite
      while ‖β(t)‖ still grows.

    Args:
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1, shape `(n,)`.
        beta0: Initial β, shape `(d,)`; None is zero.

    Returns:
        Limit: `value` is c·b, `dual` is λ ≥ 0 with X̃ᵀλ = c (zero on rows held at equality, for
        quasi-separable data; c is then projected on their complement), `basis` the rows with
        X̃ₙb = 1 that carry λ, `certificate` the relative duality gap, infeasibility included.

    Raises:
        SeparabilityError: If the data are not separable: the flow has a finite end.
        ConvergenceError: If no solver reaches a gap of 1e-7.

    Example:
        >>> x = torch.tensor([[1.0, 2.0], [1.2, 0.5], [2.0, 2.0]], dtype=torch.float64)
        >>> limit = natural_flow(x, torch.ones(3, dtype=torch.float64))
        >>> limit.basis.tolist(), [round(v, 4) for v in limit.solution.tolist()], limit.unique
        ([0, 1], [0.7895, 0.1053], True)
    """
    began = time.perf_counter()
    a = signed_rows(x, y)
    # Logarithms, because far from the origin every σ(−u) may underflow, and only ratios matter.
    unit, powers = unit_columns(a)
    logs = a.new_zeros(len(a)) if beta0 is None else _log_sigma(unit, powers, check_start(beta0, x))
    sigma = torch.exp(logs - logs.max())
    scale = float(torch.exp(logs.max())) if beta0 is not None else 0.5
    limit = _solve(unit, sigma, _by_interior) or _hard(unit, sigma)
    assert limit.dual is not None
    limit = replace(
        limit,
        solution=_in_span(a, unit, powers, limit.solution),
        value=scale * limit.value,
        dual=scale * limit.dual,
    )
    return finish(limit, x, time.perf_counter() - began)


def _log_sigma(unit: Tensor, powers: Tensor, beta0: Tensor) -> Tensor:
    """Return log σ(−X̃β₀)."""
    margins = unit @ times_power(beta0, powers)
    if not bool(torch.isfinite(margins).all()):
        raise VelocityOverflowError("the margins X̃β₀ overflow; use a shorter beta0.")
    return -softplus(margins)


def _in_span(a: Tensor, unit: Tensor, powers: Tensor, b: Tensor) -> Tensor:
    """Return b 2^{−e}; where rows do not span everything, its part in the span of the given X."""
    if bool((powers == powers[0]).all()) or rank_and_basis(unit)[0] == unit.shape[1]:
        return times_power(b, -powers)
    return lstsq(a, unit @ b).solution


class _Pair(NamedTuple):
    """A solution, its multipliers, and the rows with a multiplier."""

    b: Tensor
    lam: Tensor
    rows: Tensor


_Method = Callable[[Tensor, Tensor], _Pair | None]


def _solve(a: Tensor, sigma: Tensor, method: _Method) -> Limit | None:
    """Solve min c·b subject to Ab ≥ 1 in the row space of A, c = Aᵀσ; None if that fails."""
    rank, basis = rank_and_basis(a)
    if rank == 0:
        return None
    if rank == len(a):
        b = lstsq(a, a.new_ones(len(a))).solution
        return _limit(a, sigma, _Optimum(b, sigma, sigma > 0, True), "interpolation")
    reduced = a if basis is None else a @ basis
    size = float(reduced.abs().max()) or 1.0
    cost = reduced.mT @ sigma / size
    near = method(reduced / size, cost)
    if near is None:
        return None
    optimum = _face(reduced / size, cost, near)
    b = optimum.b / size if basis is None else basis @ optimum.b / size
    name = "HiGHS" if method is _by_highs else "interior point, vertex"
    limit = _limit(a, sigma, replace(optimum, b=b), name)
    return limit if limit.certificate < 1e-7 else None


def _hard(a: Tensor, sigma: Tensor) -> Limit:
    """Return the limit where the interior-point method failed, by the kind of the data."""
    found = separate(a)
    if found.kind == "not separable":
        raise refuse(found, "the direction of natural flow", _INSTEAD)
    if found.kind == "separable":
        limit = _solve(a, sigma, _by_highs)
    else:
        limit = _quasi(a, sigma, found.separated)
    if limit is None:
        raise ConvergenceError(
            "the linear program of natural flow was not solved to a relative gap of 1e-7: the data "
            f"are {found.kind}, by a margin of {found.margin:.1e}. Rescale features to comparable "
            "sizes."
        )
    return limit


def _by_interior(a: Tensor, c: Tensor) -> _Pair | None:
    rows, h, norms, size = balance(a)
    last = interior_point(Rows(rows, h, c))
    return _Pair(size * last.x, last.z / norms, last.active) if last.error < 1e-6 else None


def _by_highs(a: Tensor, c: Tensor) -> _Pair | None:
    pair = least_cost(a, c)
    return None if pair is None else _Pair(*pair, pair[1] > 1e-9 * float(pair[1].max()))


@dataclass(frozen=True)
class _Optimum:
    b: Tensor
    lam: Tensor
    rows: Tensor
    unique: bool


def _face(a: Tensor, c: Tensor, near: _Pair) -> _Optimum:
    """Return the optimum corrected on its basis, at the centroid if there are several."""
    b, lam, rows = near
    full = rank_and_basis(a[rows])[0] == a.shape[1]
    if not full:
        b, rows = descend_face(a, c, b, rows)
        full = rank_and_basis(a[rows])[0] == a.shape[1]
    inner = a[rows]
    exact = project(inner, torch.ones_like(inner[:, 0]), b)
    multipliers = torch.zeros_like(lam)
    multipliers[rows] = project(inner.mT, c, lam[rows])
    if float((a @ exact).min()) > 1 - 1e-9 and float(multipliers.min()) > -1e-9 * float(lam.max()):
        b, lam = exact, multipliers.clamp(min=0)
    if full:
        return _Optimum(b, lam, rows, True)
    b, unique = centroid(a, rows, b)
    return _Optimum(b, lam, rows, unique)


def _limit(a: Tensor, sigma: Tensor, optimum: _Optimum, solver: str) -> Limit:
    """Return the limit with its certificate, both recomputed on the data as given."""
    b, lam = optimum.b, optimum.lam
    c = a.mT @ sigma
    cost, bound = float(c @ b), float(lam.sum())
    certificate = max(
        abs(cost - bound) / abs(cost),
        max(0.0, 1 - float((a @ b).min())),
        float((a.mT @ lam - c).norm()) / float(c.norm()),
    )
    basis = optimum.rows.nonzero()[:, 0]
    name = "relative duality gap"
    return Limit(b, cost, certificate, name, solver, dual=lam, basis=basis, unique=optimum.unique)


def _quasi(a: Tensor, sigma: Tensor, separated: Tensor) -> Limit | None:
    """Solve with A_K b = 0 on the rows K that cannot be separated: A_S on their complement."""
    held = a[~separated]
    _, s, vh = torch.linalg.svd(held, full_matrices=True)
    rank = int((s > 1e-12 * float(s[0])).sum())
    free = vh[rank:].mT.contiguous()
    inner, weights = a[separated] @ free, sigma[separated]
    limit = _solve(inner, weights, _by_interior) or _solve(inner, weights, _by_highs)
    if limit is None:
        return None
    assert limit.dual is not None
    assert limit.basis is not None
    dual = torch.zeros_like(sigma)
    dual[separated] = limit.dual
    basis = separated.nonzero()[:, 0][limit.basis]
    return replace(limit, solution=free @ limit.solution, dual=dual, basis=basis)
