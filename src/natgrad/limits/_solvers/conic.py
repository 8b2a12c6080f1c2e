"""A primal-dual interior point for min c·x subject to Gx − h in a product of symmetric cones.

Mehrotra's predictor-corrector in Nesterov–Todd coordinates. The dual is max h·z subject to
Gᵀz = c, z in the cones. Margins that are neither quadratic nor linear programs take this form.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from natgrad.limits._solvers.cones import Cone, Scaling
from natgrad.limits._solvers.programs import cholesky_solver, refined

Point = list[Tensor]
"""One element per cone."""


class ConicProgram(Protocol):
    """min c·x subject to Gx − h ∈ K."""

    c: Tensor
    h: Point

    @property
    def cones(self) -> Sequence[Cone]:
        """Return the factors of K."""

    def mul(self, x: Tensor) -> Point:
        """Return Gx."""

    def adjoint(self, z: Point) -> Tensor:
        """Return Gᵀz."""

    def gram(self, metrics: list[Tensor]) -> Tensor:
        """Return Gᵀ M G for the metrics M = W⁻¹W⁻ᵀ of the cones."""


@dataclass(frozen=True)
class Solved:
    """The best iterate: variables, multipliers per cone, and the largest relative residual."""

    x: Tensor
    z: Point
    error: float
    iterations: int


def conic_point(program: ConicProgram, *, tolerance: float = 1e-13, limit: int = 100) -> Solved:
    """Return the best iterate; its error says whether the program was solved."""
    x, scalings = _start(program)
    best, stalled = Solved(x, _multipliers(scalings), float("inf"), 0), 0
    for k in range(limit):
        error = _error(program, x, scalings)
        stalled = 0 if error < 0.9 * best.error else stalled + 1
        if error < best.error:
            best = Solved(x, _multipliers(scalings), error, k)
        if error < tolerance or stalled > 10 or not error < float("inf"):
            break
        step = _step(program, x, scalings)
        if step is None:
            break
        x, scalings = step
    return best


def _multipliers(scalings: list[Scaling]) -> Point:
    return [w.inverse(w.lam) for w in scalings]


def _start(p: ConicProgram) -> tuple[Tensor, list[Scaling]]:
    """Return least-squares x and z, shifted into the cones."""
    scalings = [cone.identity() for cone in p.cones]
    solve = cholesky_solver(p.gram([w.metric() for w in scalings]))
    if solve is None:
        return torch.zeros_like(p.c), scalings
    x = solve(p.adjoint(p.h))
    s = _inside(p, [g - h for g, h in zip(p.mul(x), p.h, strict=True)])
    z = _inside(p, p.mul(solve(p.c)))
    found = [w.moved(a - w.lam, b - w.lam) for w, a, b in zip(scalings, s, z, strict=True)]
    return x, [w for w in found if w is not None]


def _inside(p: ConicProgram, v: Point) -> Point:
    """Return v shifted along the identity until it is well inside."""
    worst = min(cone.smallest(a) for cone, a in zip(p.cones, v, strict=True))
    size = max(float(a.abs().max()) for a in v)
    shift = 0.0 if worst > 1e-3 * size else size - worst
    return [a + shift * cone.unit() for cone, a in zip(p.cones, v, strict=True)]


def _dot(a: Point, b: Point) -> float:
    return math.fsum(float((u * v).sum()) for u, v in zip(a, b, strict=True))


def _residuals(p: ConicProgram, x: Tensor, scalings: list[Scaling]) -> tuple[Point, Tensor]:
    """Return Gx − s − h and c − Gᵀz."""
    primal = [g - w.back(w.lam) - h for g, w, h in zip(p.mul(x), scalings, p.h, strict=True)]
    return primal, p.c - p.adjoint(_multipliers(scalings))


def _error(p: ConicProgram, x: Tensor, scalings: list[Scaling]) -> float:
    """Return the largest of the relative residuals and the relative complementarity."""
    primal, dual = _residuals(p, x, scalings)
    lam = [w.lam for w in scalings]
    return max(
        math.sqrt(_dot(primal, primal)) / (1 + math.sqrt(_dot(p.h, p.h))),
        float(dual.norm()) / (1 + float(p.c.norm())),
        _dot(lam, lam) / (1e-3 + abs(float(p.c @ x))),
    )


def _step(
    p: ConicProgram, x: Tensor, scalings: list[Scaling]
) -> tuple[Tensor, list[Scaling]] | None:
    """Return the next iterate, or None if rounding prevents progress."""
    matrix = p.gram([w.metric() for w in scalings])
    solve = cholesky_solver(matrix)
    if solve is None:
        return None

    def apply(v: Tensor) -> Tensor:
        pairs = zip(scalings, p.mul(v), strict=True)
        return p.adjoint([w.inverse(w.inverse_t(g)) for w, g in pairs])

    newton = _newton(p, x, scalings, refined(solve, apply, 3))
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
    p: ConicProgram, x: Tensor, scalings: list[Scaling], solve: Callable[[Tensor], Tensor]
) -> Callable[[Point], tuple[Tensor, Point, Point]]:
    """Return the step that moves λ ∘ λ by a target, to first order, and removes the residuals.

    With Ĝ = W⁻ᵀG and λ ∘ u = target: ĜᵀĜ dx = Ĝᵀ(u − W⁻ᵀ rₚ) − r_d, W⁻ᵀ ds = Ĝ dx + W⁻ᵀ rₚ and
    W dz = u − W⁻ᵀ ds. The step in s and z is returned in the coordinates of λ.
    """
    primal, dual = _residuals(p, x, scalings)

    def step(target: Point) -> tuple[Tensor, Point, Point]:
        u = [w.divide(t) for w, t in zip(scalings, target, strict=True)]
        right = [w.inverse(v - w.inverse_t(r)) for w, v, r in zip(scalings, u, primal, strict=True)]
        dx = solve(p.adjoint(right) - dual)
        ds = [w.inverse_t(g + r) for w, g, r in zip(scalings, p.mul(dx), primal, strict=True)]
        return dx, ds, [v - d for v, d in zip(u, ds, strict=True)]

    return step


def _reach(scalings: list[Scaling], ds: Point, dz: Point) -> float:
    """Return the longest common step that stays in the cones."""
    steps = zip(scalings, ds, dz, strict=True)
    return min(min(w.reach(a), w.reach(b)) for w, a, b in steps)
