"""The least ‖b‖_p with Ab ≥ 1 for 1 < p < ∞.

Σ|bⱼ|^p has a bounded Hessian for p ≥ 2, and its conjugate for p ≤ 2, so the smooth side is solved:

    p ≥ 2:  min Σ|bⱼ|^p/p           subject to  Ab ≥ h,
    p < 2:  min Σ|uⱼ|^q/q − h Σλₙ   subject to  λ ≥ 0,  u = Aᵀλ,  1/p + 1/q = 1,

with b = |u|^{q−1} sign u for p < 2.

A primal-dual interior point with a line search on the residuals moves the power from 2, where the
problem is quadratic, to p. Any h > 0 gives the same direction; it is chosen again at every
power so that ‖b‖_p (or ‖u‖_q) is near one and no power of an entry overflows or vanishes.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad.limits._solvers.programs import cholesky_solver, refined
from natgrad.limits._solvers.two_norm import margin_gap, two_norm
from natgrad.linalg._graded import weighted_gram

_GROWTH = 1.6  # of r − 1 from one power r to the next
_LIMIT = 60  # Newton steps per power
_FLOOR = 0.1  # of the average, for slacks and multipliers at the start of a power


class _State(NamedTuple):
    """Variables x, slacks s of the constraints, multipliers z, and the level h."""

    x: Tensor
    s: Tensor
    z: Tensor
    h: float


def power_norm(a: Tensor, p: float, inside: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return b and λ ≥ 0; `margin_gap` shows whether the solution is accurate.

    Args:
        a: Rows.
        p: Power, 1 < p < ∞.
        inside: A b with Ab > 1 to start from, for hard data.
    """
    b, lam = two_norm(a, inside)
    side = _Primal(a) if p >= 2 else _Dual(a)
    goal = p if p >= 2 else p / (p - 1)
    near, r = (b, lam), 2.0
    while r < goal:
        r = min(goal, 1 + _GROWTH * (r - 1))
        state = _follow(side, side.scaled(*near, r), r, 1e-15 if r == goal else 1e-4)
        near = side.pair(state, r)
    return min((near, (b, lam)), key=lambda pair: margin_gap(a, pair[0], pair[1], p)[1])


class _Primal:
    """x = b, s = Ab − h, z = λ."""

    def __init__(self, a: Tensor) -> None:
        self.a = a

    def scaled(self, b: Tensor, lam: Tensor, r: float) -> _State:
        """Return a state inside with ‖b‖_r = 1 and h Σλ = 1."""
        b = b / b.abs().max()
        b = b / torch.linalg.vector_norm(b, r)
        values = self.a @ b
        h = max(float(values.min()), 1e-3 * float(values.abs().max()))
        s, z = (values - h).clamp(min=_FLOOR * h), lam / (h * lam.sum())
        return _State(b, s, z.clamp(min=_FLOOR * float(z.mean())), h)

    def gradient(self, x: Tensor, r: float, h: float) -> Tensor:
        return x.sign() * x.abs() ** (r - 1)

    def constraint(self, x: Tensor, h: float) -> Tensor:
        return self.a @ x - h

    def pull(self, z: Tensor) -> Tensor:
        return self.a.mT @ z

    def push(self, dx: Tensor) -> Tensor:
        return self.a @ dx

    def factor(self, x: Tensor, w: Tensor, r: float) -> Callable[[Tensor], Tensor] | None:
        weights = (r - 1) * x.abs() ** (r - 2)
        matrix = weighted_gram(self.a, w)
        matrix.diagonal().add_(weights)
        solve = cholesky_solver(matrix)
        return solve and refined(solve, lambda v: weights * v + self.a.mT @ (w * (self.a @ v)))

    def pair(self, state: _State, r: float) -> tuple[Tensor, Tensor]:
        return state.x, state.z


class _Dual:
    """x = λ, s = λ, z = Ab − h with b from u = Aᵀλ."""

    def __init__(self, a: Tensor) -> None:
        self.a, self.at = a, a.mT.contiguous()

    def scaled(self, b: Tensor, lam: Tensor, r: float) -> _State:
        """Return a state inside with ‖u‖_r = 1 and h Σλ = 1."""
        lam = lam.clamp(min=_FLOOR * float(lam.mean()))
        lam = lam / (self.at @ lam).abs().max()
        lam = lam / torch.linalg.vector_norm(self.at @ lam, r)
        h = 1 / float(lam.sum())
        z = self.a @ self._bend(lam, r) - h
        return _State(lam, lam, z.clamp(min=_FLOOR * h), h)

    def gradient(self, x: Tensor, r: float, h: float) -> Tensor:
        return self.a @ self._bend(x, r) - h

    def _bend(self, x: Tensor, r: float) -> Tensor:
        u = self.at @ x
        return u.sign() * u.abs() ** (r - 1)

    def constraint(self, x: Tensor, h: float) -> Tensor:
        return x

    def pull(self, z: Tensor) -> Tensor:
        return z

    push = pull

    def factor(self, x: Tensor, w: Tensor, r: float) -> Callable[[Tensor], Tensor] | None:
        weights = (r - 1) * (self.at @ x).abs() ** (r - 2)
        matrix = weighted_gram(self.at, weights)
        matrix.diagonal().add_(w)
        solve = cholesky_solver(matrix)
        return solve and refined(solve, lambda v: w * v + self.a @ (weights * (self.at @ v)))

    def pair(self, state: _State, r: float) -> tuple[Tensor, Tensor]:
        return self._bend(state.x, r), state.x


def _follow(side: _Primal | _Dual, state: _State, r: float, tolerance: float) -> _State:
    """Return the state at power r, by Newton's method with a shrinking target for s ⊙ z."""
    n = len(state.s)
    best, least = state, math.inf
    for _ in range(_LIMIT):
        mu = float(state.s @ state.z) / n
        dual, primal = _residuals(side, state, r)
        size = max(float(dual.abs().max()), float(primal.abs().max()))
        if max(mu, size) < least:
            best, least = state, max(mu, size)
        if max(mu, size) < tolerance:
            break
        goal = 0.1 * mu * min(1.0, max(mu, size) ** 0.5 if size < mu else 1.0)
        moved = _newton(side, state, r, goal, (dual, primal))
        if moved is None:
            break
        state = moved
    return best


def _residuals(side: _Primal | _Dual, state: _State, r: float) -> tuple[Tensor, Tensor]:
    return (
        side.gradient(state.x, r, state.h) - side.pull(state.z),
        side.constraint(state.x, state.h) - state.s,
    )


def _newton(
    side: _Primal | _Dual, state: _State, r: float, goal: float, left: tuple[Tensor, Tensor]
) -> _State | None:
    """Return the state after one step, shortened until the residuals fall; None if none does."""
    (x, s, z, h), (dual, primal) = state, left
    w = z / s
    solve = side.factor(x, w, r)
    if solve is None:
        return None
    target = s * z - goal
    dx = solve(side.pull(-target / s - w * primal) - dual)
    ds = side.push(dx) + primal
    dz = -(target + z * ds) / s
    step = min(1.0, *(0.99 / max(float((-d / v).max()), 1e-300) for v, d in ((s, ds), (z, dz))))
    before = _size(dual, primal, s * z - goal)
    while step > 1e-10:
        there = _State(x + step * dx, s + step * ds, z + step * dz, h)
        after = _size(*_residuals(side, there, r), there.s * there.z - goal)
        if after <= (1 - 0.01 * step) * before:
            return there
        step *= 0.5
    return None


def _size(*parts: Tensor) -> float:
    return math.sqrt(sum(float(v @ v) for v in parts))
