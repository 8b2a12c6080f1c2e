"""The least ‖b‖ with Ab ≥ 1 in any norm of `linalg.norms`, with a solver for each norm."""

import math
from collections.abc import Callable
from functools import singledispatch
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from natgrad.errors import UnsupportedError
from natgrad.limits._solvers.balls import Ball, GroupBall, Inside, MaxBall, Outside, SpectralBall
from natgrad.limits._solvers.conic import conic_point
from natgrad.limits._solvers.one_norm import one_norm
from natgrad.limits._solvers.power_norm import power_norm
from natgrad.limits._solvers.two_norm import two_norm
from natgrad.linalg.norms import Group, Lp, Metric, Norm, Nuclear, Spectral

Pair = tuple[Tensor, Tensor]
"""b and multipliers λ ≥ 0."""

_ROUNDS = 60


class Solver(NamedTuple):
    """How a norm's program is solved: rows (and a feasible b, or None) to a pair; and its name."""

    solve: Callable[[Tensor, Tensor | None], Pair]
    name: str
    takes_start: bool = True


@singledispatch
def solver_of(norm: Norm, shape: tuple[int, ...]) -> Solver:
    """Return the solver for b of this shape, flattened."""
    raise UnsupportedError(
        f"max margins are solved in the norms of natgrad.linalg.norms, not in {norm!r}. "
        "certify bounds the margin of any separator in any norm."
    )


@solver_of.register
def _(norm: Lp, shape: tuple[int, ...]) -> Solver:
    if norm.p == 2:
        return Solver(two_norm, "interior point, active set")
    if norm.p == 1:
        return Solver(lambda a, inside: one_norm(a, inside=inside), "interior point, vertex")
    if math.isinf(norm.p):
        return _inside(MaxBall(math.prod(shape)))
    return Solver(lambda a, inside: power_norm(a, norm.p, inside), "interior point by powers")


@solver_of.register
def _(norm: Group, shape: tuple[int, ...]) -> Solver:
    ball = GroupBall(norm.numbers(shape).numpy())
    return _outside(ball) if norm.p == 1 else _inside(ball)


@solver_of.register
def _(norm: Spectral, shape: tuple[int, ...]) -> Solver:
    return _inside(SpectralBall(*_matrix(shape)))


@solver_of.register
def _(norm: Nuclear, shape: tuple[int, ...]) -> Solver:
    return _outside(SpectralBall(*_matrix(shape)))


@solver_of.register
def _(norm: Metric, shape: tuple[int, ...]) -> Solver:
    def solve(a: Tensor, inside: Tensor | None) -> Pair:
        # With c = bL the length of b is that of c, and Ab = (A L⁻ᵀ) c.
        near = None if inside is None else norm.rooted(inside.view(shape)).reshape(-1)
        c, lam = two_norm(norm.unrooted(a.view(-1, *shape)).reshape(a.shape), near)
        return norm.from_root(c.view(shape)).reshape(-1), lam

    return Solver(solve, "interior point, active set")


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise UnsupportedError(
            "norms of singular values need a matrix of weights: pass integer class labels to "
            "multiclass_max_margin."
        )
    return shape[0], shape[1]


def _inside(ball: Ball) -> Solver:
    def solve(a: Tensor, _: Tensor | None) -> Pair:
        found = conic_point(Inside(a.numpy(), np.ones(len(a)), ball))
        return torch.from_numpy(found.x[:-1]), torch.from_numpy(found.z[0].clip(min=0))

    return Solver(solve, "conic interior point", takes_start=False)


def _outside(ball: Ball) -> Solver:
    def solve(a: Tensor, _: Tensor | None) -> Pair:
        program = Outside(a.numpy(), np.ones(len(a)), ball)
        found = conic_point(program)
        return torch.from_numpy(program.primal(found.z)), torch.from_numpy(found.x.clip(min=0))

    return Solver(solve, "conic interior point", takes_start=False)


def by_rows(a: Tensor, solver: Solver, inside: Tensor | None) -> Pair:
    """Solve on few rows, and add violated rows until there are none.

    Few rows support a margin: most rows are never needed, and the cost of a solver grows
    with the square or the cube of their number.
    """
    n, d = a.shape
    few = max(200, d // 2)
    if n <= 2 * few:
        return solver.solve(a, inside)
    used = torch.zeros(n, dtype=torch.bool)
    used[torch.linspace(0, n - 1, few).long()] = True
    lam = a.new_zeros(n)
    for _ in range(_ROUNDS):
        b, part = solver.solve(a[used], inside)
        lam = a.new_zeros(n)
        lam[used] = part
        values = a @ b
        broken = ~used & (values < (1 - 1e-12) * float(values[used].min()))
        if not bool(broken.any()) or not bool(torch.isfinite(b).all()):
            break
        used &= values < 2 * float(values[used].min())  # the others are easily met
        order = torch.where(broken, values, math.inf).argsort()
        used[order[: min(int(broken.sum()), few)]] = True
    return b, lam
