"""A primal-dual interior point for min c·x subject to Gx − h in a product of symmetric cones.

Mehrotra's predictor-corrector in Nesterov–Todd coordinates. The dual is max h·z subject to
Gᵀz = c, z in the cones. Margins that are neither quadratic nor linear programs take this form.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from natgrad.limits._solvers.cones import Array, Cone, Scaling
from natgrad.limits._solvers.programs import refined

Point = list[Array]
"""One element per cone."""

_CLOSE, _ROUGH = 1e-9, 1e-4  # errors at which the end is near, and up to which it is far


class ConicProgram(Protocol):
    """min c·x subject to Gx − h ∈ K."""

    c: Array
    h: Point

    @property
    def cones(self) -> Sequence[Cone]:
        """Return the factors of K."""

    def mul(self, x: Array) -> Point:
        """Return Gx."""

    def adjoint(self, z: Point) -> Array:
        """Return Gᵀz."""

    def gram(self, metrics: list[Array]) -> Array:
        """Return Gᵀ M G for the metrics M = W⁻¹W⁻ᵀ of the cones."""


@dataclass(frozen=True)
class Solved:
    """The best iterate: variables, multipliers per cone, and the largest relative residual."""

    x: Array
    z: Point
    error: float
    iterations: int


@np.errstate(all="ignore")  # what is not finite ends the iteration
def conic_point(program: ConicProgram, *, tolerance: float = 1e-13, limit: int = 100) -> Solved:
    """Return the best iterate; its error says whether the program was solved."""
    x, scalings = _start(program)
    best, stalled = Solved(x, _multipliers(scalings), float("inf"), 0), 0
    for k in range(limit):
        error = _error(program, x, scalings)
        stalled = 0 if error < 0.9 * best.error else stalled + 1
        if error < best.error:
            best = Solved(x, _multipliers(scalings), error, k)
        # Below _CLOSE rounding decides: an iterate that is not better is followed by worse ones.
        patience = 0 if best.error < _CLOSE else 10
        if error < tolerance or stalled > patience or not error < float("inf"):
            break
        try:
            step = _step(program, x, scalings, refinements=1 if error > _ROUGH else 3)
        except np.linalg.LinAlgError:
            break
        if step is None:
            break
        x, scalings = step
    return best


def _multipliers(scalings: list[Scaling]) -> Point:
    return [w.inverse(w.lam) for w in scalings]


def _start(p: ConicProgram) -> tuple[Array, list[Scaling]]:
    """Return least-squares x and z, shifted into the cones."""
    scalings = [cone.identity() for cone in p.cones]
    solve = _cholesky(p.gram([w.metric() for w in scalings]))
    if solve is None:
        return np.zeros_like(p.c), scalings
    x = solve(p.adjoint(p.h))
    s = _inside(p, [g - h for g, h in zip(p.mul(x), p.h, strict=True)])
    z = _inside(p, p.mul(solve(p.c)))
    found = [w.moved(a - w.lam, b - w.lam) for w, a, b in zip(scalings, s, z, strict=True)]
    return x, [w for w in found if w is not None]


def _inside(p: ConicProgram, v: Point) -> Point:
    """Return v shifted along the identity until it is well inside."""
    worst = min(cone.smallest(a) for cone, a in zip(p.cones, v, strict=True))
    size = max(float(np.abs(a).max()) for a in v)
    shift = 0.0 if worst > 1e-3 * size else size - worst
    return [a + shift * cone.unit() for cone, a in zip(p.cones, v, strict=True)]


def _dot(a: Point, b: Point) -> float:
    return math.fsum(float((u * v).sum()) for u, v in zip(a, b, strict=True))


def _residuals(p: ConicProgram, x: Array, scalings: list[Scaling]) -> tuple[Point, Array]:
    """Return Gx − s − h and c − Gᵀz."""
    primal = [g - w.back(w.lam) - h for g, w, h in zip(p.mul(x), scalings, p.h, strict=True)]
    return primal, p.c - p.adjoint(_multipliers(scalings))


def _error(p: ConicProgram, x: Array, scalings: list[Scaling]) -> float:
    """Return the largest of the relative residuals and the relative complementarity."""
    primal, dual = _residuals(p, x, scalings)
    lam = [w.lam for w in scalings]
    return max(
        math.sqrt(_dot(primal, primal)) / (1 + math.sqrt(_dot(p.h, p.h))),
        float(np.linalg.norm(dual)) / (1 + float(np.linalg.norm(p.c))),
        _dot(lam, lam) / (1e-3 + abs(float(p.c @ x))),
    )


def _step(
    p: ConicProgram, x: Array, scalings: list[Scaling], refinements: int
) -> tuple[Array, list[Scaling]] | None:
    """Return the next iterate, or None if rounding prevents progress."""
    matrix = p.gram([w.metric() for w in scalings])
    solve = _cholesky(matrix)
    if solve is None:
        return None

    def apply(v: Array) -> Array:
        pairs = zip(scalings, p.mul(v), strict=True)
        return p.adjoint([w.inverse(w.inverse_t(g)) for w, g in pairs])

    newton = _newton(p, x, scalings, refined(solve, apply, refinements))
    lam = [w.lam for w in scalings]
    square = [cone.product(a, a) for cone, a in zip(p.cones, lam, strict=True)]
    _, ds, dz = newton([-a for a in square])
    total = _dot(lam, lam)
    mu = total / sum(cone.degree for cone in p.cones)
    alpha = min(1.0, _reach(scalings, ds, dz))
    ahead = [[a + alpha * b for a, b in zip(lam, d, strict=True)] for d in (ds, dz)]
    center = max(0.0, _dot(*ahead) / total) ** 3
    target = [
        center * mu * cone.unit() - a - cone.product(b, c)
        for cone, a, b, c in zip(p.cones, square, ds, dz, strict=True)
    ]
    dx, ds, dz = newton(target)
    alpha = min(1.0, 0.98 * _reach(scalings, ds, dz))
    moved = [w.moved(alpha * a, alpha * b) for w, a, b in zip(scalings, ds, dz, strict=True)]
    inside = [w for w in moved if w is not None]
    return (x + alpha * dx, inside) if len(inside) == len(moved) else None


def _newton(
    p: ConicProgram, x: Array, scalings: list[Scaling], solve: Callable[[Array], Array]
) -> Callable[[Point], tuple[Array, Point, Point]]:
    """Return the step that moves λ ∘ λ by a target, to first order, and removes the residuals.

    With Ĝ = W⁻ᵀG and λ ∘ u = target: ĜᵀĜ dx = Ĝᵀ(u − W⁻ᵀ rₚ) − r_d, W⁻ᵀ ds = Ĝ dx + W⁻ᵀ rₚ and
    W dz = u − W⁻ᵀ ds. The step in s and z is returned in the coordinates of λ.
    """
    primal, dual = _residuals(p, x, scalings)

    def step(target: Point) -> tuple[Array, Point, Point]:
        u = [w.divide(t) for w, t in zip(scalings, target, strict=True)]
        right = [w.inverse(v - w.inverse_t(r)) for w, v, r in zip(scalings, u, primal, strict=True)]
        dx = solve(p.adjoint(right) - dual)
        ds = [w.inverse_t(g + r) for w, g, r in zip(scalings, p.mul(dx), primal, strict=True)]
        return dx, ds, [v - d for v, d in zip(u, ds, strict=True)]

    return step


def _cholesky(matrix: Array) -> Callable[[Array], Array] | None:
    """Return the solver of a positive-definite system, with a little jitter if necessary."""
    from scipy.linalg.lapack import dpotrf, dpotrs  # here, to keep `import natgrad` light

    size = np.abs(matrix.diagonal()).max()
    if not np.isfinite(size):
        return None
    for jitter in (0.0, 1e-15, 1e-13, 1e-11):
        factor, info = dpotrf(matrix + jitter * size * np.eye(len(matrix)), lower=1)
        if info == 0:
            return lambda r: np.asarray(dpotrs(factor, r, lower=1)[0])
    return None


def _reach(scalings: list[Scaling], ds: Point, dz: Point) -> float:
    """Return the longest common step that stays in the cones."""
    steps = zip(scalings, ds, dz, strict=True)
    return min(min(w.reach(a), w.reach(b)) for w, a, b in steps)
