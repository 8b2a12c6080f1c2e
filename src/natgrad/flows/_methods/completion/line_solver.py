"""The solver for natural gradient flow of matrix completion with the Fisher over all entries."""

import math
from typing import Generic, cast

import torch

from natgrad.flows._follow import Ended, Path, Settings, Solver
from natgrad.flows._methods.completion.hypothesis_steps import WALL, Factors, LineFollower
from natgrad.flows._methods.completion.solver import is_completion
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached
from natgrad.parametrizations.base import P, leaves
from natgrad.stopping import Status

_LONGEST = 0.5  # fraction of the remaining line per step: stopping rules are checked in between
_ACCURACY = 1e-2  # times rtol: how far a step may leave the line


class LineSolver(Solver):
    """β on its straight line, and factors that follow it: see `hypothesis_steps`.

    `auto` never chooses it. β is as accurate as asked in an eleventh of the time or less, but the
    factors end 12 to 29 % away from those of the flow, at rtol 1e-3 and 1e-6 alike (see
    `bench_integrate.py`).
    """

    name = "line"
    purpose = "natural flows of MatrixProduct under Gaussian, the Fisher over all entries, float64"

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether β moves on a straight line."""
        return (
            problem.is_natural
            and is_completion(problem)
            and problem.options.get("fisher_over") in (None, "all")
            and not problem.options.get("damping")
            and problem.options.get("metric", "fisher") == "fisher"
            and all(w.dtype == torch.float64 for w in leaves(problem.params))
        )

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return None: the factors are not those of the flow; users may choose it."""
        return None

    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path."""
        return _LinePath(problem, end, 1e-6 if settings.rtol is None else settings.rtol)


class _LinePath(Path[P], Generic[P]):
    """A `LineFollower` in the time of the flow."""

    method = "line of the hypothesis, the factors after it"

    def __init__(self, problem: Problem[P], end: float, rtol: float) -> None:
        x, y = problem.batch
        factors = cast(Factors, problem.params)
        selection = problem.options.get("selection", "min_norm")
        values = y.reshape(-1).to(factors[0])
        tolerance = min(_ACCURACY * rtol, 0.1)
        self._run = LineFollower(factors, x, values, selection, tolerance)
        self._run.floor = 8 * torch.finfo(torch.float64).eps
        self.t, self._end = 0.0, end

    def begin(self) -> None:
        """Find a first step, which moves no factor by more than half its size."""
        self._eta = self._run.first_step()
        self._smallest = WALL * self._eta
        self._before = (self.t, self._run.factors)

    def step(self) -> Ended | None:
        """Take one step; return None, or the reason why there is none."""
        self._before = (self.t, self._run.factors)
        if self._run.arrived():
            if math.isinf(self._end):
                return Ended(Status.STALLED, f"the entries fit at t = {self.t:.6g}")
            self.t = self._end
            return None
        left, wall = -math.expm1(self.t - self._end), -math.expm1(self.t - self._run.wall)
        wanted = min(self._eta, _LONGEST, left, wall)
        taken = self._run.step(wanted, min(self._smallest, wanted))
        if taken is None:
            return Ended(Status.SINGULAR, self._run.singular(self.t))
        self._eta = 2 * taken
        self.t = self._end if taken == left else self.t - math.log1p(-taken)
        return None

    def at(self, t: float) -> P:
        """Return the parameters at a time within the last step, by steps of their own."""
        if t >= self.t:
            return self.params
        kept = self._run.factors
        now, self._run.factors = self._before
        while now < t:
            wanted = -math.expm1(now - t)
            taken = self._run.step(wanted, WALL * wanted)
            if taken is None:
                break
            now = t if taken == wanted else now - math.log1p(-taken)
        found, self._run.factors = self._run.factors, kept
        return cast(P, found)

    @property
    def params(self) -> P:
        """Return the parameters now."""
        return cast(P, self._run.factors)

    @property
    def evaluations(self) -> int:
        """Return the number of lifts."""
        return self._run.lifts

    @property
    def error(self) -> float:
        """Return the sum of deviations from the line, relative to its length."""
        return self._run.relative_deviation
