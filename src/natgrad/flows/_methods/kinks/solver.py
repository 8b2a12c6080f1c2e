"""The solver for gradient flow of ReLU networks: smooth pieces, joined at kinks.

Between kinks the flow is smooth, and DOP853 takes the steps. A step over a kink is cut where the
pre-activation vanishes; Brent's method on the step's interpolant finds that time. There either the
velocity on the other side points away from the kink, or it points back. In the second case the flow
slides: it stays on the kink with the slope of Filippov 1988, *Differential equations with
discontinuous righthand sides*, until that slope leaves [0, 1].
"""

import math
from functools import partial
from typing import Generic

import torch
from torch import Tensor

from natgrad.flows._clock import LinearClock, LogClock
from natgrad.flows._follow import Ended, Path, Settings, Solver
from natgrad.flows._methods.kinks.network import kinks_of, relus
from natgrad.flows._methods.steppers.stepper import ScipyStepper, accuracy
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached
from natgrad.parametrizations.base import P, flatten, unflatten
from natgrad.stopping import Status

_COARSE = 1e-5  # from this on, the fifth order needs fewer evaluations between kinks
_SLACK = 1e-3  # times rtol and the pre-activations: how far one may be on the wrong side
_RUSH = 100  # number of kinks at one time after which the flow is considered stuck
_SLOPES = 1e-9  # how far a slope may leave [0, 1] before the flow leaves the kink


class KinkSolver(Solver):
    """DOP853 between kinks, event location at them, Filippov's solution on them."""

    name = "kinks"
    purpose = "euclidean flows of a Network with torch.nn.ReLU modules, each called once"

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether this is gradient flow of a network with ReLU modules."""
        return problem.is_euclidean and bool(relus(problem))

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `auto` should choose it for problems that it suits."""
        return "for a network with kinks" if self.suits(problem) else None

    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path."""
        return _KinkPath(problem, reached, end, settings)


class _KinkPath(Path[P], Generic[P]):
    """A flow that crosses kinks, or slides along them."""

    def __init__(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> None:
        log_time = (
            not problem.likelihood.attained if settings.log_time is None else settings.log_time
        )
        self._clock = LogClock(reached.t) if log_time else LinearClock(reached.t)
        self.t, self._end = reached.t, end
        self._problem, self._like = problem, reached.params
        self._rtol = 1e-6 if settings.rtol is None else settings.rtol
        self._smooth = "dopri" if self._rtol >= _COARSE else "dop853"
        self.method = f"kinks, {self._smooth} between them" + (" in log time" if log_time else "")
        self._atol = settings.atol
        self._kinks = kinks_of(problem)
        self._held: list[int] = []
        self._crossed, self._slid, self._rushed = 0, 0, 0
        self._length: float | None = None
        self._y = flatten(reached.params)

    def begin(self) -> None:
        """Find the slopes at the start."""
        self._slopes = self._kinks.slopes(self._y)
        if self._atol is None:
            self._atol = 1e-3 * self._rtol * float(self._y.square().mean().sqrt() or 1.0)
        z = self._kinks.inputs(self._y, self._slopes)
        self._slack = _SLACK * self._rtol * float(z.abs().max().clamp(min=1e-300))
        self._restart(0.0, self._y)

    def _field(self, tau: float, y: Tensor) -> Tensor:
        return self._clock.rate(tau) * self._kinks.sliding(y, self._slopes, self._held)[1]

    def _restart(self, tau: float, y: Tensor) -> None:
        """Restart at a kink, with the last step size."""
        end = self._clock.tau(self._end)
        self._stepper = ScipyStepper(
            self._smooth,
            self._field,
            y,
            end,
            rtol=accuracy(self._smooth, self._rtol),
            atol=self._atol or 0.0,
            start=tau,
            first_step=None if self._length is None else min(self._length, end - tau),
        )
        self._tau, self._y = tau, y

    def step(self) -> Ended | None:
        """Take one step, cut at the first kink; return None, or why there is none."""
        begun, self._last = self._tau, self._stepper
        failure = self._stepper.step()
        if failure is not None:
            return Ended(Status.STALLED, f"at t = {self.t:.6g}: {failure}")
        self._length = max(self._stepper.t - begun, 16 * math.ulp(abs(begun) + 1e-300))
        if not bool(torch.isfinite(self._stepper.y).all()):
            return Ended(Status.DIVERGED, f"parameters overflow after t = {self.t:.6g}")
        self._tau, self._y = self._stepper.t, self._stepper.y
        turned = self._room(self._y) < -1
        if bool(turned.any()):
            index, tau = self._first(torch.nonzero(turned)[:, 0].tolist(), begun)
            y = self._stepper.interpolate(tau)
            self._turn(index, y)
            self._restart(tau, y)
            self._rushed = self._rushed + 1 if tau == begun else 0
            if self._rushed > _RUSH:
                return Ended(Status.STALLED, f"kinks accumulate at t = {self.t:.6g}")
        at_end = self._tau >= self._clock.tau(self._end)
        self.t = self._end if at_end else min(self._clock.t(self._tau), self._end)
        return None

    def _room(self, y: Tensor) -> Tensor:
        """Return the distance of each ReLU from its kink, in units of the slack; negative past it.

        For ReLUs held at their kink, the distance of the slope from 0 and 1, in its own units.
        """
        z = self._kinks.inputs(y, self._slopes)
        room = z * (2 * self._slopes - 1) / self._slack
        if self._held:
            s = self._kinks.sliding(y, self._slopes, self._held)[0][self._held]
            room[self._held] = torch.minimum(s, 1 - s) / _SLOPES
        return room

    def _room_of(self, index: int, tau: float) -> float:
        """Return the distance of one ReLU in the last step, zero half a unit past its kink."""
        y = self._last.interpolate(tau)
        if index in self._held:
            return float(self._room(y)[index]) + 0.5
        z = float(self._kinks.inputs(y, self._slopes)[index])
        return z * (2 * float(self._slopes[index]) - 1) / self._slack + 0.5

    def _first(self, turned: list[int], begun: float) -> tuple[int, float]:
        """Return which ReLU reaches its kink first in the last step, and when."""
        from scipy.optimize import brentq  # imported here to keep `import natgrad` light

        found = (turned[0], self._tau)
        for index in turned:
            room = partial(self._room_of, index)
            if room(begun) <= 0:
                return index, begun
            if room(found[1]) > 0:
                continue
            tau = brentq(room, begun, found[1], xtol=1e-14 * max(1.0, abs(found[1])), rtol=1e-12)
            found = (index, float(tau))
        return found

    def _turn(self, index: int, y: Tensor) -> None:
        """Cross a kink, stay on it, or leave it."""
        slopes, _ = self._kinks.sliding(y, self._slopes, self._held)
        if index in self._held:
            self._held.remove(index)
            self._slopes[index] = 1.0 if float(slopes[index]) > 0.5 else 0.0
            return
        flipped = self._slopes.clone()
        flipped[index] = 1 - flipped[index]
        speeds = []
        for trial in (self._slopes, flipped):
            s, v = self._kinks.sliding(y, trial, self._held)
            speeds.append(self._kinks.speed(y, s, v, index))
        if speeds[0] * speeds[1] >= 0:
            self._slopes, self._crossed = flipped, self._crossed + 1
        else:
            self._held = sorted([*self._held, index])
            self._slid += 1

    def at(self, t: float) -> P:
        """Return the parameters at a time within the last step."""
        if t >= self.t:
            return self.params
        return unflatten(self._last.interpolate(self._clock.tau(t)), self._like)

    @property
    def params(self) -> P:
        """Return the parameters now."""
        return unflatten(self._y, self._like)

    @property
    def evaluations(self) -> int:
        """Return the number of evaluations."""
        return self._kinks.evaluations

    @property
    def error(self) -> float:
        """Return the sum of the tolerances of the steps."""
        return math.nan

    @property
    def slid(self) -> bool:
        """Return whether the flow slid along kinks so far."""
        return self._slid > 0

    @property
    def note(self) -> str:
        """Return how many kinks were crossed or slid along, in words."""
        held = f", on {len(self._held)} of them now" if self._held else ""
        slid = f" and slid along {self._slid}{held}" if self._slid else ""
        return f"the flow crossed {self._crossed} kinks{slid}"
