"""Solvers for any flow: adaptive steps of the whole state, in time or in its logarithm."""

import math
from typing import Generic

import torch
from torch import Tensor

from natgrad.flows._clock import LinearClock, LogClock
from natgrad.flows._follow import Ended, Path, Settings, Solver
from natgrad.flows._methods.rkc import Field
from natgrad.flows._methods.steppers import ChebyshevStepper, ScipyStepper, Stepper
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached
from natgrad.parametrizations.base import P, flatten, unflatten
from natgrad.stopping import Status


class AdaptiveSolver(Solver):
    """One of SciPy's methods, named as in `steppers`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def preferred(self, problem: Problem[P]) -> bool:
        """Return whether this is `dop853` and the flow a natural one."""
        return self.name == "dop853" and problem.is_natural

    def stepper(self, field: Field, y: Tensor, end: float, rtol: float, atol: float) -> Stepper:
        """Return the stepper from time 0 to `end`."""
        return ScipyStepper(self.name, field, y, end, rtol=rtol, atol=atol)

    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path from where another ended."""
        return _AdaptivePath(self, problem, reached, end, settings)


class ChebyshevSolver(AdaptiveSolver):
    """Runge–Kutta–Chebyshev, for gradient flows."""

    def __init__(self) -> None:
        super().__init__("rkc")

    def preferred(self, problem: Problem[P]) -> bool:
        """Return whether the flow is not a natural one."""
        return not problem.is_natural

    def stepper(self, field: Field, y: Tensor, end: float, rtol: float, atol: float) -> Stepper:
        """Return the stepper from time 0 to `end`."""
        return ChebyshevStepper(field, y, end, rtol=rtol, atol=atol)


class _AdaptivePath(Path[P], Generic[P]):
    """A flow solved by a stepper that sees a stretched time and one flat vector.

    Steps of a gradient flow shrink to nothing where it is too stiff, those of a natural one where
    it is singular.
    """

    def __init__(
        self,
        solver: AdaptiveSolver,
        problem: Problem[P],
        reached: Reached[P],
        end: float,
        settings: Settings,
    ) -> None:
        log_time = (
            not problem.likelihood.attained if settings.log_time is None else settings.log_time
        )
        self.method = f"{reached.method}, then {solver.name}" if reached.method else solver.name
        self.method += " in log time" if log_time else ""
        self.t = reached.t
        self._clock = LogClock(reached.t) if log_time else LinearClock(reached.t)
        self._solver, self._problem, self._reached, self._end = solver, problem, reached, end
        self._rtol = 1e-6 if settings.rtol is None else settings.rtol
        self._atol = settings.atol
        self._stepper: Stepper | None = None

    def _field(self, tau: float, state: Tensor) -> Tensor:
        problem = self._problem.at(self._clock.t(tau))
        v = problem.velocity(unflatten(state, problem.params))
        return self._clock.rate(tau) * flatten(v)

    def begin(self) -> None:
        """Evaluate the first velocity."""
        state, end = flatten(self._reached.params), self._clock.tau(self._end)
        self._stepper = self._solver.stepper(self._field, state, end, self._rtol, self._atol)

    @property
    def _steps(self) -> Stepper:
        assert self._stepper is not None
        return self._stepper

    def step(self) -> Ended | None:
        """Take one step; return None, or why there is none."""
        failure = self._steps.step()
        if failure is not None and self._problem.is_natural:
            detail = f"the velocity is unbounded at t = {self.t:.6g}, where a rank is lost"
            return Ended(Status.SINGULAR, detail)
        if failure is not None:
            return Ended(Status.STALLED, f"at t = {self.t:.6g}: {failure}")
        if not bool(torch.isfinite(self._steps.y).all()):
            return Ended(Status.DIVERGED, f"parameters overflow after t = {self.t:.6g}")
        # The clock rounds: the end of the interval is the end of time.
        tau = self._steps.t
        now = self._end if tau >= self._clock.tau(self._end) else self._clock.t(tau)
        self.t = min(now, self._end)
        return None

    def at(self, t: float) -> P:
        """Return the parameters at a time within the last step."""
        return unflatten(self._steps.interpolate(self._clock.tau(t)), self._problem.params)

    @property
    def params(self) -> P:
        """Return the parameters now."""
        return unflatten(self._steps.y, self._problem.params)

    @property
    def evaluations(self) -> int:
        """Return the number of evaluations, those of the solver before included."""
        own = 0 if self._stepper is None else self._stepper.evaluations
        return self._reached.evaluations + own

    @property
    def error(self) -> float:
        """Return the sum of local error estimates; NaN before the first evaluation."""
        return math.nan if self._stepper is None else self._stepper.error
