"""A dense primal-dual interior-point method for min ½x·Qx + c·x subject to Gx ≥ h.

The method is Mehrotra's predictor-corrector (SIAM J. Optim. 2, 1992) from an infeasible start.
`programs.py` puts all limits that are linear or quadratic programs in this form, and factors the
normal matrix Q + Gᵀ diag(w) G on its shorter side.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

Solve = Callable[[Tensor], Tensor]
"""Maps r to the solution of the normal equations."""


class Program(Protocol):
    """min ½x·Qx + c·x subject to Gx ≥ h."""

    c: Tensor
    h: Tensor

    def curvature(self, x: Tensor) -> Tensor | None:
        """Return Qx, or None if the program is linear."""

    def mul(self, x: Tensor) -> Tensor:
        """Return Gx."""

    def transposed(self, z: Tensor) -> Tensor:
        """Return Gᵀz."""

    def factor(self, w: Tensor) -> Solve | None:
        """Return the solver of (Q + Gᵀ diag(w) G) x = r, or None if singular."""


@dataclass(frozen=True)
class Interior:
    """The last iterate: x, slacks s = Gx − h > 0, multipliers z > 0, and their error.

    Attributes:
        x: Variables.
        s: Slacks.
        z: Multipliers of Gx ≥ h.
        active: Which constraints hold with equality: those whose slack shrank faster than their
            multiplier in the last step (Tapia's indicators, which do not depend on scale).
        error: Largest of the relative residuals and of the relative complementarity.
        iterations: Newton systems factored.
    """

    x: Tensor
    s: Tensor
    z: Tensor
    active: Tensor
    error: float
    iterations: int


def interior_point(
    program: Program, *, inside: Tensor | None = None, tolerance: float = 1e-11
) -> Interior:
    """Return the best iterate; its `error` says whether the program was solved.

    If the program is infeasible or unbounded, the error stays large; the caller decides what to do.

    Args:
        program: The program.
        inside: A strictly feasible x to start from, for programs whose solution is far from the
            usual start; more iterations are then allowed.
        tolerance: Error at which to stop.
    """
    x, s, z = _start(program) if inside is None else _start_inside(program, inside)
    patience, limit = (12, 80) if inside is None else (60, 200)
    active = z > s
    best = Interior(x, s, z, active, float("inf"), 0)
    stalled = 0
    for k in range(limit):
        residuals = _residuals(program, x, s, z)
        error = _error(program, x, s, z, residuals)
        if error < best.error:
            stalled = stalled if error > 0.9 * best.error else 0
            best = Interior(x, s, z, active, error, k)
        stalled += 1
        if error < tolerance or stalled > patience or not bool(torch.isfinite(x).all()):
            break
        step = _step(program, x, s, z, residuals)
        if step is None:
            break
        active = step[1] / s < step[2] / z
        x, s, z = step
    return best


def _start(p: Program) -> tuple[Tensor, Tensor, Tensor]:
    """Return Mehrotra's start: least-squares x and z, shifted into the interior."""
    solve = p.factor(torch.ones_like(p.h))
    if solve is None:
        x = torch.zeros_like(p.c)
        return x, torch.ones_like(p.h), torch.ones_like(p.h)
    x = solve(p.transposed(p.h) - p.c)
    s, z = p.mul(x) - p.h, p.mul(solve(_gradient(p, x)))
    s = s + max(0.0, -1.5 * float(s.min()))
    z = z + max(0.0, -1.5 * float(z.min()))
    product = float(s @ z)
    if product <= 0:
        return x, s + 1, z + 1
    return x, s + 0.5 * product / float(z.sum()), z + 0.5 * product / float(s.sum())


def _start_inside(p: Program, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return a feasible x with its slacks, and multipliers that center them."""
    s = p.mul(x) - p.h
    bent = p.curvature(x)
    objective = abs(float(p.c @ x)) + (0.0 if bent is None else float(x @ bent))
    return x, s, objective / len(s) / s


def _residuals(p: Program, x: Tensor, s: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the dual residual Qx + c − Gᵀz and the primal one Gx − s − h."""
    return _gradient(p, x) - p.transposed(z), p.mul(x) - s - p.h


def _gradient(p: Program, x: Tensor) -> Tensor:
    bent = p.curvature(x)
    return p.c if bent is None else p.c + bent


def _error(p: Program, x: Tensor, s: Tensor, z: Tensor, residuals: tuple[Tensor, Tensor]) -> float:
    dual, primal = residuals
    bent = p.curvature(x)
    objective = float(p.c @ x) + (0.0 if bent is None else 0.5 * float(x @ bent))
    size = float(p.c.norm()) + (0.0 if bent is None else float(bent.norm()))
    return max(
        float(dual.norm()) / (size or 1.0),
        float(primal.norm()) / (1.0 + float(p.h.norm())),
        float(s @ z) / (1.0 + abs(objective)),
    )


def _step(
    p: Program, x: Tensor, s: Tensor, z: Tensor, residuals: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the next iterate: predictor, corrector, and steps just short of the boundary."""
    dual, primal = residuals
    w, mu = z / s, float(s @ z) / len(s)
    solve = p.factor(w) if mu > 0 else None
    if solve is None:
        return None

    def newton(target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the step that moves s ⊙ z by −target, to first order."""
        dx = solve(p.transposed(-target / s - w * primal) - dual)
        ds = p.mul(dx) + primal
        return dx, ds, -(target + z * ds) / s

    tied = p.curvature(x) is not None
    _, ds, dz = newton(s * z)
    a, b = _lengths(s, ds, z, dz, 1.0, tied)
    center = (float((s + a * ds) @ (z + b * dz)) / len(s) / mu) ** 3
    dx, ds, dz = newton(s * z + ds * dz - center * mu)
    a, b = _lengths(s, ds, z, dz, max(0.99, 1 - mu), tied)
    return x + a * dx, s + a * ds, z + b * dz


def _lengths(
    s: Tensor, ds: Tensor, z: Tensor, dz: Tensor, shy: float, tied: bool
) -> tuple[float, float]:
    """Return the longest primal and dual steps in [0, 1], equal for a quadratic objective."""
    a, b = _longest(s, ds, shy), _longest(z, dz, shy)
    return (min(a, b), min(a, b)) if tied else (a, b)


def _longest(v: Tensor, dv: Tensor, shy: float) -> float:
    """Return the largest step in [0, 1] that keeps v + step·dv non-negative, times `shy`."""
    return min(1.0, shy / max(float((-dv / v).max()), 1e-300))
