"""Solvers with adaptive steps for one vector, in time or in log time."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Generic

import numpy as np
import torch
from torch import Tensor

from natgrad.flows._clock import LinearClock, LogClock
from natgrad.flows._follow import Ended, Path, Settings, Solver
from natgrad.flows._methods.coordinates import Coordinates
from natgrad.flows._methods.kinks.network import has_kinks
from natgrad.flows._methods.layered.coordinates import coordinates_of, is_one_layer
from natgrad.flows._methods.steppers.paired import PairedStepper
from natgrad.flows._methods.steppers.stepper import (
    ChebyshevStepper,
    ScipyStepper,
    Stepper,
    accuracy,
)
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached
from natgrad.parametrizations.base import P, leaves
from natgrad.stopping import Status

_ABSOLUTE = 1e-3  # times rtol and the size of the parameters: allowed error of an entry near zero
_LOOK = 8  # steps between two checks whether the flow still moves
_FEW, _SOME, _TIGHT = 40, 128, 1e-6  # parameters up to which LSODA's dense Jacobian is cheap
_EXACT = 200  # the same if the Jacobian is known


class AdaptiveSolver(Solver):
    """One of SciPy's methods, named as in `steppers`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `auto` should choose DOP853 (natural flows) or LSODA (few parameters)."""
        if problem.is_natural:
            return "for a natural flow" if self.name == "dop853" else None
        if self.name != "lsoda" or any(w.dtype != torch.float64 for w in leaves(problem.params)):
            return None  # the differences that LSODA takes for its Jacobian vanish in float32
        count = sum(leaf.numel() for leaf in leaves(problem.params))
        if count <= _EXACT and is_one_layer(problem):
            return f"for {count} parameters of a convex loss"
        few = count <= _FEW or (count <= _SOME and rtol <= _TIGHT)
        return f"for {count} parameters" if few else None

    def coordinates(self, problem: Problem[P], params: P) -> Coordinates[P]:
        """Return the coordinates that the stepper integrates."""
        return coordinates_of(problem, params)

    def stepper(self, flow: "AdaptivePath[P]", y: Tensor, end: float, **options: Any) -> Stepper:
        """Return the stepper from τ = 0 to `end`."""
        if flow.seen.arrays is not None:
            options["arrays"] = flow.array_field
        if flow.seen.jacobian is not None and self.name not in ("dopri", "dop853"):
            options["jacobian"] = flow.array_jacobian
        options["rtol"] = accuracy(self.name, options["rtol"], flow.seen.contracts)
        return ScipyStepper(self.name, flow.field, y, end, **options)

    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path that starts where another one ended."""
        return AdaptivePath(self, problem, reached, end, settings)


class ChebyshevSolver(AdaptiveSolver):
    """Runge–Kutta–Chebyshev, for gradient flows."""

    def __init__(self) -> None:
        super().__init__("rkc")

    def stepper(self, flow: "AdaptivePath[P]", y: Tensor, end: float, **options: Any) -> Stepper:
        """Return the stepper from τ = 0 to `end`."""
        options["rtol"] = accuracy(self.name, options["rtol"])
        return ChebyshevStepper(flow.field, y, end, **options)


class PairedSolver(AdaptiveSolver):
    """Runge–Kutta–Chebyshev or DOP853, whichever advances farther per evaluation."""

    def __init__(self) -> None:
        super().__init__("pair")

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `auto` should choose it for problems that no other method suits."""
        count = sum(leaf.numel() for leaf in leaves(problem.params))
        return None if problem.is_natural else f"for {count} parameters"

    def stepper(self, flow: "AdaptivePath[P]", y: Tensor, end: float, **options: Any) -> Stepper:
        """Return the stepper from τ = 0 to `end`."""
        arrays = None if flow.seen.arrays is None else flow.array_field
        return PairedStepper(flow.field, y, end, arrays=arrays, **options)


class AdaptivePath(Path[P], Generic[P]):
    """A flow solved by a stepper in stretched time, on one flat vector.

    Steps of a gradient flow shrink to zero where it is too stiff, those of a natural flow where
    it is singular.

    Attributes:
        seen: The vector and its velocity.
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
        self._rests, self._count = False, 0
        self.seen: Coordinates[P]

    def field(self, tau: float, y: Tensor) -> Tensor:
        """Return dy/dτ."""
        return self._clock.rate(tau) * self.seen.at(self._clock.t(tau)).velocity(y)

    def array_field(self, tau: float, y: np.ndarray) -> np.ndarray:
        """Return dy/dτ of an array, for coordinates that have one."""
        assert self.seen.arrays is not None
        return self._clock.rate(tau) * self.seen.arrays(y)

    def array_jacobian(self, tau: float, y: np.ndarray) -> np.ndarray:
        """Return its Jacobian."""
        assert self.seen.jacobian is not None
        return self._clock.rate(tau) * self.seen.jacobian(y)

    def begin(self) -> None:
        """Evaluate the first velocity."""
        self.seen = self._solver.coordinates(self._problem, self._reached.params)
        y, end = self.seen.start, self._clock.tau(self._end)
        atol = self._atol
        if atol is None:
            size = float(torch.sqrt(torch.mean(y.double() ** 2)))
            atol = _ABSOLUTE * self._rtol * (size or 1.0)
        self._stepper = self._solver.stepper(self, y, end, rtol=self._rtol, atol=atol)

    @property
    def _steps(self) -> Stepper:
        assert self._stepper is not None
        return self._stepper

    def step(self) -> Ended | None:
        """Take one step; return None, or the reason why there is none."""
        self._count += 1
        if self._rests or (self._count % _LOOK == 0 and self._at_rest()):
            self.t, self._rests = self._end, True
            return None
        failure = self._steps.step()
        if failure is not None and self._problem.is_natural:
            detail = f"the velocity is unbounded at t = {self.t:.6g}, where a rank is lost"
            return Ended(Status.SINGULAR, detail)
        if failure is not None:
            return Ended(Status.STALLED, f"at t = {self.t:.6g}: {failure}")
        if not _finite(self._steps.y):
            return Ended(Status.DIVERGED, f"parameters overflow after t = {self.t:.6g}")
        # The clock rounds, so the end of the interval is set to the final time.
        tau = self._steps.t
        now = self._end if tau >= self._clock.tau(self._end) else self._clock.t(tau)
        self.t = min(now, self._end)
        return None

    def _at_rest(self) -> bool:
        """Return whether the flow does not move in the remaining time."""
        return self.seen.stands(self._steps.y, self._end - self.t, self._rtol)

    @property
    def hint(self) -> str:
        """Return what to do about kinks, if the network has some."""
        if not has_kinks(self._problem):
            return ""
        return (
            "the network has kinks, at which steps shrink: only method='kinks' locates them, and "
            "only for gradient flows. Try a smooth activation such as torch.nn.Softplus(beta=20)"
        )

    def at(self, t: float) -> P:
        """Return the parameters at a time within the last step."""
        if self._rests:
            return self.params
        return self.seen.params(self._steps.interpolate(self._clock.tau(t)))

    @property
    def params(self) -> P:
        """Return the parameters now."""
        return self.seen.params(self._steps.y)

    def capture(self) -> Callable[[], P]:
        """Return a function that returns the parameters of this moment."""
        return partial(self.seen.params, self._steps.y)

    @property
    def evaluations(self) -> int:
        """Return the number of evaluations, including those of earlier solvers."""
        own = 0 if self._stepper is None else self._stepper.evaluations
        return self._reached.evaluations + own

    @property
    def error(self) -> float:
        """Return the sum of local error estimates; NaN before the first evaluation."""
        return math.nan if self._stepper is None else self._stepper.error


def _finite(y: Tensor) -> bool:
    """Return whether all entries are finite; NumPy takes a fifth of torch's time for few."""
    if y.device.type == "cpu" and y.dtype == torch.float64:
        values = y.numpy()
        # A sum is faster; where it overflows, the entries decide.
        return math.isfinite(values.sum()) or bool(np.isfinite(values).all())
    return bool(torch.isfinite(y).all())
