"""Maximum margins: exact for ℓ2 and ℓ1, local for ℓ_p with p < 1. [KMH21] §3."""

import math
import time
from dataclasses import replace

from torch import Tensor

from natgrad._checks import describe, integer, number
from natgrad._named import named
from natgrad._renamed import renamed
from natgrad.errors import ConvergenceError, UnsupportedError
from natgrad.limits._inputs import signed_rows
from natgrad.limits._result import Limit, finish
from natgrad.limits._separability import refuse, separate
from natgrad.limits._solvers.one_norm import one_norm
from natgrad.limits._solvers.quasi_norm import Local, quasi_norm
from natgrad.limits._solvers.scaling import scaled, unit_size
from natgrad.limits._solvers.two_norm import margin_gap, two_norm
from natgrad.linalg._columns import times_power

_INSTEAD = {
    "not separable": "The logistic loss then has a finite minimizer: run a flow or Newton's method "
    "on it.",
    "quasi-separable": "Separate the rows of error.found.separated alone, or use "
    "limits.natural_flow, which covers this case.",
}


@renamed(tolerance="rtol")
@named
def max_margin(
    x: Tensor, y: Tensor, p: float = 2, *, starts: int = 4, seed: int = 0, rtol: float = 1e-9
) -> Limit:
    """Return argmin ‖β‖_p subject to yₙ xₙ·β ≥ 1, the limit of gradient flow at depth L = 2/p.

    The margin of any β is bounded by that of any convex combination of the rows,
        minₙ yₙ xₙ·β / ‖β‖_p ≤ ‖X̃ᵀλ‖_q / Σλ,  λ ≥ 0,  1/p + 1/q = 1,
    so solution and dual λ certify each other: the certificate is the relative gap between the two
    sides. For p < 1 the problem is not convex, and its certificate is a stationarity residual.

    - p = 2: an interior-point method on the shorter side, then the active set is solved exactly.
    - p = 1: Mehrotra's interior-point method on the shorter side, then an exact solve of the
      vertex.
    - p < 1: reweighted ℓ1 (Candès, Wakin and Boyd 2008) from several starts, a local method.

    Rank-deficient inputs are fine: the ℓ2 solution lies in the span of the data.

    Args:
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1, shape `(n,)`.
        p: 2, 1, or a number in (0, 1), e.g. 2/L for depth L.
        starts: Starts for p < 1: the ℓ1 solution, the ℓ2 solution, then random weights.
        seed: Seed of the random starts.
        rtol: Largest certificate accepted.

    Returns:
        Limit: `value` is the margin min yₙ xₙ·β / ‖β‖_p, `basis` the support vectors, `dual` is λ
        with X̃ᵀλ = β (p = 2), ∈ ∂‖β‖₁ (p = 1), = p|β|^{p−1} sign β on the support (p < 1).

    Raises:
        UnsupportedError: If p is not 1, 2 or in (0, 1).
        SeparabilityError: If the data are quasi-separable or not separable.
        ConvergenceError: If the certificate stays above `rtol`.

    Example:
        >>> import torch
        >>> x = torch.tensor([[1.0, 2.0], [-1.2, -0.5]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, -1.0], dtype=torch.float64)
        >>> [round(v, 4) for v in max_margin(x, y, p=1).solution.tolist()]
        [0.7895, 0.1053]
        >>> max_margin(x, y, p=0.5).local
        True
    """
    began = time.perf_counter()
    a = signed_rows(x, y)
    _check_power(p)
    starts = integer(starts, "starts", low=1)
    seed = integer(seed, "seed")
    rtol = number(rtol, "rtol", low=0)
    a, size = unit_size(a)
    limit, gap = _attempt(a, p, starts, seed, None)
    if gap > rtol:
        found = separate(a)
        if found.kind != "separable":
            raise refuse(found, f"the ℓ_{p:g} max margin", _INSTEAD)
        inside = 2 * found.direction / float((a @ found.direction).min())
        limit, gap = _attempt(a, p, starts, seed, inside)
        if limit is None or gap > rtol:
            raise ConvergenceError(
                f"the ℓ_{p:g} max margin was found only to a relative gap of {gap:.1e}: the data "
                f"are separable, but by a margin of {found.margin:.1e} only. Rescale features to "
                "comparable sizes, or raise rtol."
            )
    assert limit is not None
    assert limit.dual is not None
    limit = replace(
        limit,
        solution=times_power(limit.solution, -size),
        dual=times_power(limit.dual, -p * size),
        value=scaled(limit.value, size),
        starts=tuple(scaled(v, size) for v in limit.starts),
    )
    return finish(limit, x, time.perf_counter() - began)


def _attempt(
    a: Tensor, p: float, starts: int, seed: int, inside: Tensor | None
) -> tuple[Limit | None, float]:
    """Return a candidate and its certificate, from a feasible point if one is given."""
    if p not in (1, 2):
        best = quasi_norm(a, p, starts, seed, inside)
        return (None, math.inf) if best is None else (_local(a, p, best), best.residual)
    b, lam = two_norm(a, inside) if p == 2 else one_norm(a, inside=inside)
    margin, gap = margin_gap(a, b, lam, p)
    if not margin > 0:
        return None, math.inf
    basis = (lam > 0).nonzero()[:, 0]
    name = "interior point, active set" if p == 2 else "interior point, vertex"
    return Limit(b, margin, gap, "relative duality gap", name, dual=lam, basis=basis), gap


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


def _check_power(p: float) -> None:
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not (0 < p <= 1 or p == 2):
        raise UnsupportedError(
            f"max_margin takes p = 2, p = 1 or 0 < p < 1 (2/L for depth L), but got {describe(p)}."
        )
