"""Maximum margins: exact in every norm, local for ℓ_p with p < 1. [KMH21] §3."""

import math
import time
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad._checks import describe, integer, number
from natgrad._named import named
from natgrad._renamed import renamed
from natgrad.errors import ConvergenceError, UnsupportedError
from natgrad.limits._inputs import class_rows, signed_rows
from natgrad.limits._result import Limit, finish
from natgrad.limits._separability import refuse, separate
from natgrad.limits._solvers.norm_margin import by_rows, solver_of
from natgrad.limits._solvers.quasi_norm import Local, quasi_norm
from natgrad.limits._solvers.scaling import scaled, unit_size
from natgrad.linalg._columns import times_power
from natgrad.linalg.norms import Lp, Norm, as_norm

_INSTEAD = {
    "not separable": "The logistic loss then has a finite minimizer: run a flow or Newton's method "
    "on it.",
    "quasi-separable": "Separate the rows of error.found.separated alone, or use "
    "limits.natural_flow, which covers this case.",
}
_TOO_CLOSE = "Rescale features to comparable sizes, or raise rtol."


@renamed(tolerance="rtol")
@named
def max_margin(
    x: Tensor, y: Tensor, p: float | Norm = 2, *, starts: int = 4, seed: int = 0, rtol: float = 1e-9
) -> Limit:
    """Return argmin ‖β‖ subject to yₙ xₙ·β ≥ 1, the limit of steepest descent in the norm.

    In ℓ_p, p = 2/L, it is the limit of gradient flow of depth L. The margin of any β is bounded by
    the dual norm of any convex combination of the rows,
        minₙ yₙ xₙ·β / ‖β‖ ≤ ‖X̃ᵀλ‖* / Σλ,  λ ≥ 0,
    so solution and dual λ certify each other: the certificate is the relative gap between both
    sides. For p < 1 the problem is not convex and its certificate is a stationarity residual.

    - p = 2 or a metric: interior point on the shorter side, then the active set is solved exactly.
    - p = 1: Mehrotra's interior point on the shorter side, then the vertex is solved exactly.
    - Other p in (1, ∞): interior point with continuation of the power from 2.
    - p = ∞ and groups of features: interior point over symmetric cones.
    - p < 1: reweighted ℓ1 (Candès, Wakin and Boyd 2008) from several starts, and the best single
      feature if one separates the data; local.

    Rank-deficient inputs are fine: the ℓ2 solution lies in the span of the data. If the solution
    is not unique, as may happen for p = 1, p = ∞ and groups, one of them is returned.

    Args:
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1, shape `(n,)`.
        p: A power in (0, ∞], e.g. 2/L for depth L, or a norm of `natgrad.linalg.norms`: `Metric`
            or `Group`.
        starts: Starts for p < 1: the ℓ1 solution, the ℓ2 solution, then random weights.
        seed: Seed of the random starts.
        rtol: Largest certificate accepted.

    Returns:
        Limit: `value` is the margin min yₙ xₙ·β / ‖β‖, `basis` the support vectors, `dual` is λ
        with X̃ᵀλ = β (p = 2), = p|β|^{p−1} sign β on the support (p < 1), ∈ ∂‖β‖ (otherwise).

    Raises:
        UnsupportedError: If p is neither a positive number nor a supported norm.
        SeparabilityError: If the data are quasi-separable or not separable.
        ConvergenceError: If the certificate stays above `rtol`.

    Example:
        >>> x = torch.tensor([[1.0, 2.0], [-1.2, -0.5]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, -1.0], dtype=torch.float64)
        >>> [round(v, 4) for v in max_margin(x, y, p=1).solution.tolist()]
        [0.7895, 0.1053]
        >>> [round(v, 4) for v in max_margin(x, y, p=math.inf).solution.tolist()]
        [0.5882, 0.5882]
        >>> max_margin(x, y, p=0.5).local
        True
    """
    began = time.perf_counter()
    rows = signed_rows(x, y)
    norm = _check_power(p)
    starts = integer(starts, "starts", low=1)
    seed = integer(seed, "seed")
    rtol = number(rtol, "rtol", low=0)
    a, size = unit_size(rows)
    if isinstance(norm, Norm):
        limit = _certified(a, norm, a.shape[1:], rtol, "max_margin")
        power = 2.0 if _is_euclidean(norm) else 1.0
    else:
        limit, power = _quasi(a, norm, starts, seed, rtol), norm
    assert limit.dual is not None
    limit = replace(
        limit,
        solution=times_power(limit.solution, -size),
        dual=times_power(limit.dual, -power * size),
        value=scaled(limit.value, size),
        starts=tuple(scaled(v, size) for v in limit.starts),
    )
    return finish(limit, x, time.perf_counter() - began)


@named
def multiclass_max_margin(
    x: Tensor,
    labels: Tensor,
    p: float | Norm = 2,
    *,
    classes: int | None = None,
    rtol: float = 1e-8,
) -> Limit:
    """Return argmin ‖β‖ subject to (β_y − β_c)·xₙ ≥ 1 for all classes c ≠ yₙ.

    These are the limits of descents of the softmax loss: gradient descent in the Frobenius norm
    (p = 2), sign descent and Adam in the largest entry (p = ∞), coordinate descent in the sum of
    entries (p = 1), Muon in the spectral norm, two layers under gradient descent in the nuclear
    norm. The certificate is the gap to ‖Σ λ_{nc} (e_y − e_c) xₙᵀ‖* / Σλ, as in `max_margin`.

    Args:
        x: Inputs, shape `(n, d)`.
        labels: Class of each row, integers 0…k − 1, shape `(n,)`.
        p: A power in [1, ∞] over all entries of β, or a norm of `natgrad.linalg.norms`:
            `Spectral`, `Nuclear`, `Metric`, or `Group` of rows or columns.
        classes: k; default the largest label plus one.
        rtol: Largest certificate accepted.

    Returns:
        Limit: `solution` is β, shape `(k, d)`; `value` the margin; `dual` is λ, shape `(n, k)`,
        zero at each row's own class; `basis` the rows that support the margin.

    Raises:
        SeparabilityError: If no β classifies all rows strictly. Its certificate is over pairs of a
            row and a wrong class, in the order of `dual` without the rows' own classes.
        ConvergenceError: If the certificate stays above `rtol`.

    Example:
        >>> x = torch.eye(3, dtype=torch.float64)
        >>> limit = multiclass_max_margin(x, torch.tensor([0, 1, 2]))
        >>> [[round(v, 4) for v in row] for row in limit.solution.tolist()]
        [[0.6667, -0.3333, -0.3333], [-0.3333, 0.6667, -0.3333], [-0.3333, -0.3333, 0.6667]]
    """
    began = time.perf_counter()
    pairs, wrong, k = class_rows(x, labels, classes)
    norm, rtol = as_norm(p), number(rtol, "rtol", low=0)
    a, size = unit_size(pairs)
    shape = (k, x.shape[1])
    limit = _certified(a, norm, shape, rtol, "multiclass_max_margin")
    assert limit.dual is not None
    dual = limit.dual.new_zeros(len(x), k)
    dual[wrong] = times_power(limit.dual, -(2.0 if _is_euclidean(norm) else 1.0) * size)
    limit = replace(
        limit,
        solution=times_power(limit.solution, -size).reshape(shape),
        dual=dual,
        value=scaled(limit.value, size),
        basis=(dual > 0).any(1).nonzero()[:, 0],
    )
    return finish(limit, x, time.perf_counter() - began)


def _certified(
    a: Tensor, norm: Norm, shape: tuple[int, ...] | torch.Size, rtol: float, caller: str
) -> Limit:
    """Return the largest margin in a norm; raise with the reason if there is none."""
    solver = solver_of(norm, tuple(shape))
    found = _scaled(a, norm, shape, *by_rows(a, solver, None))
    if found.gap > rtol:
        seen = separate(a)
        if seen.kind != "separable":
            raise refuse(seen, caller, _INSTEAD)
        if solver.takes_start:
            inside = 2 * seen.direction / float((a @ seen.direction).min())
            again = _scaled(a, norm, shape, *by_rows(a, solver, inside))
            found = min(found, again, key=lambda f: f.gap)
        if found.gap > rtol:
            raise ConvergenceError(
                f"the max margin in {norm!r} was found only to a relative gap of {found.gap:.1e}: "
                f"the data are separable, but by a margin of {seen.margin:.1e} only. {_TOO_CLOSE}"
            )
    basis = (found.lam > 0).nonzero()[:, 0]
    name = "relative duality gap"
    return Limit(found.b, found.margin, found.gap, name, solver.name, dual=found.lam, basis=basis)


class _Found(NamedTuple):
    b: Tensor
    lam: Tensor
    margin: float
    gap: float


def _scaled(
    a: Tensor, norm: Norm, shape: tuple[int, ...] | torch.Size, b: Tensor, lam: Tensor
) -> _Found:
    """Return the pair as documented, with the margin of b and its distance from λ's bound."""
    values = a @ b
    least, total = float(values.min()), float(lam.sum())
    if not (0 < least < math.inf and 0 < total < math.inf):
        return _Found(b, lam, 0.0, math.inf)
    # Multipliers of rows far from the margin are remainders of the interior-point method.
    lam = torch.where(lam > 1e-10 * lam.max(), lam, 0.0)
    b, pulled = b / least, (a.mT @ lam).view(shape)
    length, reach = norm(b.view(shape)), norm.dual()(pulled)
    margin, bound = 1 / length, reach / float(lam.sum())
    if not _is_euclidean(norm):
        lam = lam / reach
    return _Found(b, lam, margin, max(0.0, bound - margin) / bound)


def _is_euclidean(norm: Norm) -> bool:
    return isinstance(norm, Lp) and norm.p == 2


def _quasi(a: Tensor, p: float, starts: int, seed: int, rtol: float) -> Limit:
    """Return the best local minimum for p < 1."""
    best = quasi_norm(a, p, starts, seed, None)
    if best is None or best.residual > rtol:
        found = separate(a)
        if found.kind != "separable":
            raise refuse(found, f"the ℓ_{p:g} max margin", _INSTEAD)
        inside = 2 * found.direction / float((a @ found.direction).min())
        best = quasi_norm(a, p, starts, seed, inside)
        if best is None or best.residual > rtol:
            gap = math.inf if best is None else best.residual
            raise ConvergenceError(
                f"the ℓ_{p:g} max margin was found only to a relative residual of {gap:.1e}: the "
                f"data are separable, but by a margin of {found.margin:.1e} only. {_TOO_CLOSE}"
            )
    return _local(a, p, best)


def _local(a: Tensor, p: float, best: Local) -> Limit:
    norm = float(best.b.abs().pow(p).sum() ** (1 / p))
    return Limit(
        best.b,
        float((a @ best.b).min()) / norm,
        best.residual,
        "relative stationarity residual",
        "reweighted ℓ1",
        dual=best.lam,
        basis=(best.lam > 0).nonzero()[:, 0],
        local=True,
        starts=tuple(1 / v for v in best.norms),
    )


def _check_power(p: float | Norm) -> float | Norm:
    """Return the norm, or a power below one."""
    if isinstance(p, Norm):
        return p
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not p > 0:
        raise UnsupportedError(
            f"max_margin takes a power 0 < p ≤ ∞ (2/L for depth L) or a norm of "
            f"natgrad.linalg.norms, but got {describe(p)}."
        )
    return p if p < 1 else Lp(p)
