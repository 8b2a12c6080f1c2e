"""Two explicit methods in one run: the one that advances farther per evaluation is used.

DOP853 has order eight, but its steps are limited to 6/λ with the spectral radius λ of the Jacobian.
Runge–Kutta–Chebyshev has order two, and its steps of s evaluations reach 0.65 s²/λ. Which one is
cheaper depends on the tolerance, on the problem, and on the time: flows start smooth and end stiff.
"""

from typing import Any

from torch import Tensor

from natgrad.flows._methods.steppers.rkc import Field, SpectralRadius
from natgrad.flows._methods.steppers.stepper import (
    ArrayField,
    ChebyshevStepper,
    ScipyStepper,
    Stepper,
    accuracy,
)

_TRIAL = {"rkc": 4, "dop853": 3, "dopri": 3}  # steps after which the rate of a method is known
_FIRST, _LONGEST = 8, 256  # steps between two trials
_BOUND = 0.25  # time per evaluation, times λ, that the others rarely exceed
_STIFF = {"dop853": 4.0, "dopri": 2.2}  # step times λ from which stability may be the limit
_FINEST = 1e-11  # tolerance below which rounding errors limit Runge–Kutta–Chebyshev
LOOSE = 1e-4
"""Tolerance from which Runge–Kutta–Chebyshev goes first."""


class PairedStepper:
    """An initial value problem solved by both methods in turn; `rtol` as in `accuracy`.

    `arrays` is the field as a function of NumPy arrays, if there is one; from `loose` on
    Runge–Kutta–Chebyshev goes first. `smooth` is the method for flows that are not stiff.
    """

    def __init__(
        self,
        field: Field,
        y: Tensor,
        end: float,
        *,
        rtol: float,
        atol: float,
        arrays: ArrayField | None = None,
        loose: float = LOOSE,
        smooth: str = "dop853",
    ) -> None:
        self._field, self._end, self._rtol, self._atol = field, end, rtol, atol
        self._arrays, self._smooth = arrays, smooth
        self._radius = SpectralRadius()
        self._spent, self._error = 0, 0.0
        self._length: dict[str, float | None] = {"rkc": None, smooth: None}
        self._rate = {"rkc": 0.0, smooth: 0.0}
        self._patience, self._on_trial = _FIRST, False
        self._begin("rkc" if rtol >= loose else smooth, 0.0, y)
        self._left = _FIRST

    @property
    def t(self) -> float:
        """Return the time reached."""
        return self._active.t

    @property
    def y(self) -> Tensor:
        """Return the state reached."""
        return self._active.y

    @property
    def evaluations(self) -> int:
        """Return the number of evaluations of both methods."""
        return self._spent + self._active.evaluations

    @property
    def error(self) -> float:
        """Return the sum of local error estimates."""
        return self._error + self._active.error

    def interpolate(self, t: float) -> Tensor:
        """Return the state at a time within the last step."""
        return self._active.interpolate(t)

    def step(self) -> str | None:
        """Take one step; return None, or why it failed."""
        if self._left == 0:
            self._reconsider()
        self._left -= 1
        before, spent = self.t, self.evaluations
        failure = self._active.step()
        if failure is not None and self._name == "rkc":  # too tight for the second order
            self._on_trial = False
            self._switch(self._smooth)
            failure = self._active.step()
        if failure is None:
            self._length[self._name] = self.t - before
            # Recent steps count most, because the first steps of a method are short.
            now = (self.t - before) / max(self.evaluations - spent, 1)
            self._rate[self._name] = 0.5 * (self._rate[self._name] + now)
        return failure

    def _begin(self, name: str, t: float, y: Tensor) -> None:
        """Continue with a method from here."""
        h = self._length[name]
        if h is None and name == "rkc":  # its first trial is not decided by a cautious first step
            h = self._length[self._smooth]
        options: dict[str, Any] = {
            "rtol": accuracy(name, self._rtol),
            "atol": accuracy(name, self._rtol) / self._rtol * self._atol,
            "start": t,
            "first_step": None if h is None else min(h, self._end - t),
        }
        self._active: Stepper
        if name == "rkc":
            self._active = ChebyshevStepper(
                self._field, y, self._end, radius=self._radius, **options
            )
        else:
            options["arrays"] = self._arrays
            self._active = ScipyStepper(name, self._field, y, self._end, **options)
        self._name, self._left = name, _TRIAL[name]

    def _switch(self, name: str) -> None:
        t, y = self.t, self.y
        self._spent, self._error = self.evaluations, self.error
        self._begin(name, t, y)

    def _reconsider(self) -> None:
        """Compare the rates after a trial; start a trial if the other method may be faster."""
        other = self._smooth if self._name == "rkc" else "rkc"
        worse = self._rate[self._name] < self._rate[other]
        if self._on_trial:
            self._on_trial = False
            self._patience = min(2 * self._patience, _LONGEST) if worse else _FIRST
            if worse:
                self._switch(other)
        elif self._promising(other):
            self._on_trial = True
            self._switch(other)
            return
        else:
            self._patience = min(2 * self._patience, _LONGEST)
        self._left = self._patience

    def _promising(self, other: str) -> bool:
        """Return whether the other method may advance farther per evaluation."""
        if other != "rkc":
            return self._rate["rkc"] * self._radius.value / 1.2 < _BOUND
        if accuracy("rkc", self._rtol) < _FINEST:
            return False
        before = self._radius.evaluations
        self._radius.update(self._field, self.t, self.y, self._field(self.t, self.y))
        self._spent += 1 + self._radius.evaluations - before
        reach = (self._length[self._smooth] or 0.0) * self._radius.value / 1.2
        return reach > _STIFF[self._smooth]
