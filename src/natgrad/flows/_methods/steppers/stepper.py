"""Adaptive steppers with one interface: SciPy's solvers, and Runge–Kutta–Chebyshev."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from natgrad.errors import NatgradError
from natgrad.flows._methods.steppers.rkc import Field, SpectralRadius, local_error, rkc_step, stages

ArrayField = Callable[..., np.ndarray]
_EXPLICIT = ("dopri", "dop853")
SCIPY = {"dopri": "RK45", "dop853": "DOP853", "radau": "Radau", "bdf": "BDF", "lsoda": "LSODA"}
"""SciPy's names of its solvers, by ours."""


def accuracy(method: str, rtol: float, contracts: bool = False) -> float:
    """Return the tolerance of a step at which a flow ends with an error of about rtol.

    A flow that contracts, as that of a convex loss does, forgets its errors.

    Measured on the flows of `benchmarks/bench_integrate.py`. Errors of a method of order p grow
    like its tolerance to the power p/(p + 1), which matters for the second order.
    """
    if contracts and method == "lsoda":
        return 3 * rtol
    if method in ("rkc", "dual"):
        return rtol * math.sqrt(min(1.0, rtol / 1e-3))
    return rtol * {"dop853": 0.3, "dopri": 0.1, "lsoda": 0.03}.get(method, 1.0)


class Stepper(Protocol):
    """An initial value problem being solved."""

    @property
    def t(self) -> float:
        """Return the time reached."""

    @property
    def y(self) -> Tensor:
        """Return the state reached."""

    @property
    def evaluations(self) -> int:
        """Return the number of evaluations of the field so far."""

    @property
    def error(self) -> float:
        """Return the sum of local error estimates, relative to the state."""

    def step(self) -> str | None:
        """Take one step; return None, or why it failed."""

    def interpolate(self, t: float) -> Tensor:
        """Return the state at a time within the last step."""


class ScipyStepper:
    """One of SciPy's solvers: `dopri`, `dop853`, `radau`, `bdf` or `lsoda`."""

    def __init__(
        self,
        method: str,
        field: Field,
        y: Tensor,
        end: float,
        *,
        rtol: float,
        atol: float,
        start: float = 0.0,
        first_step: float | None = None,
        arrays: ArrayField | None = None,
        jacobian: ArrayField | None = None,
    ) -> None:
        self._like, self._stepping = y, False
        self._plain = y.dtype == torch.float64 and y.device.type == "cpu"
        self._failure: NatgradError | None = None

        def numpy_field(t: float, state: np.ndarray) -> np.ndarray:
            # A trial step may be too long; NaN makes the solver try a shorter one.
            if self._failure is not None and not np.isfinite(state).all():
                return np.full_like(state, np.nan)
            try:
                return field(t, torch.from_numpy(state).to(y)).double().cpu().numpy()
            except NatgradError as error:
                if not self._stepping or method not in _EXPLICIT:
                    raise
                self._failure = error
                return np.full_like(state, np.nan)

        import scipy.integrate  # imported here to keep `import natgrad` light

        solver = getattr(scipy.integrate, SCIPY[method])
        options: dict[str, Any] = {"rtol": max(rtol, 1e-13), "atol": atol, "first_step": first_step}
        if jacobian is not None:
            options["jac"] = jacobian
        call = numpy_field if arrays is None else arrays
        self._solver = solver(call, start, y.double().cpu().numpy(), end, **options)
        self._dense: Any = None
        self.error = 0.0
        self._rtol = rtol

    @property
    def t(self) -> float:
        """Return the time reached."""
        return float(self._solver.t)

    @property
    def y(self) -> Tensor:
        """Return the state reached."""
        y = torch.from_numpy(self._solver.y)
        return y if self._plain else y.to(self._like)

    @property
    def evaluations(self) -> int:
        """Return the number of evaluations."""
        return int(self._solver.nfev)

    def step(self) -> str | None:
        """Take one step."""
        self._stepping, self._failure = True, None
        with np.errstate(all="ignore"):  # a trial step that goes too far is taken shorter
            message = self._solver.step()
        self._stepping = False
        if self._solver.status == "failed":
            if self._failure is not None:
                raise self._failure
            return str(message)
        self._dense = None
        self.error += self._rtol  # SciPy bounds each step's error by the tolerance
        return None

    def interpolate(self, t: float) -> Tensor:
        """Return the state at a time within the last step."""
        if self._dense is None:
            self._dense = self._solver.dense_output()
        return torch.from_numpy(np.asarray(self._dense(t))).to(self._like)


class ChebyshevStepper:
    """Runge–Kutta–Chebyshev in the state's own dtype and device; cubic Hermite in between."""

    def __init__(
        self,
        field: Field,
        y: Tensor,
        end: float,
        *,
        rtol: float,
        atol: float,
        start: float = 0.0,
        first_step: float | None = None,
        radius: SpectralRadius | None = None,
    ) -> None:
        self._field, self._end, self._rtol, self._atol = field, end, rtol, atol
        self.t, self.y, self.previous = start, y, start
        self._f = field(start, y)
        self._radius = SpectralRadius() if radius is None else radius
        self._own_evaluations = 1 - self._radius.evaluations
        self.error = 0.0
        self._h, self._fresh = first_step, True
        self._since_radius = 0
        self._before = (y, self._f)

    @property
    def evaluations(self) -> int:
        """Return the number of evaluations, those for the spectral radius included."""
        return self._own_evaluations + self._radius.evaluations

    def step(self) -> str | None:
        """Take one step, halving it until the error estimate is within tolerance."""
        if self._since_radius >= 10 or self._fresh:
            self._fresh = False
            self._radius.update(self._field, self.t, self.y, self._f)
            self._since_radius = 0
        if self._h is None:
            self._h = self._first_step()
        smallest = 16 * math.ulp(max(abs(self.t), 1e-300))
        while True:
            h = min(self._h, self._end - self.t)
            if h <= smallest:
                return "the step size fell below the spacing of numbers"
            s = max(2, stages(h, self._radius.value))
            y = rkc_step(self._field, self.t, self.y, h, self._f, s)
            f = self._field(self.t + h, y)
            self._own_evaluations += s
            scale = self._atol + self._rtol * torch.maximum(self.y.abs(), y.abs())
            estimate = local_error(self.y, y, h, self._f, f)
            error = float(torch.sqrt(torch.mean((estimate / scale) ** 2)))
            if error <= 1:
                break
            shrink = 0.1 if not math.isfinite(error) else max(0.1, 0.8 * error ** (-1 / 3))
            self._h = h * shrink
            self._radius.update(self._field, self.t, self.y, self._f)
        self._before = (self.y, self._f)
        self.previous, self.t = self.t, self.t + h
        self.y, self._f = y, f
        self.error += self._rtol * error
        self._since_radius += 1
        self._h = h * min(5.0, max(0.2, 0.8 * max(error, 1e-8) ** (-1 / 3)))
        return None

    def _first_step(self) -> float:
        scale = self._atol + self._rtol * self.y.abs()
        speed = float(torch.sqrt(torch.mean((self._f / scale) ** 2)))
        guess = 1 / max(self._radius.value, 1e-300)
        return min(guess, 0.1 / speed if speed > 0 else guess, self._end)

    def interpolate(self, t: float) -> Tensor:
        """Return the cubic Hermite interpolant within the last step."""
        (y0, f0), (y1, f1) = self._before, (self.y, self._f)
        h = self.t - self.previous
        x = (t - self.previous) / h
        a, b = (1 + 2 * x) * (1 - x) ** 2, x * (1 - x) ** 2
        c, d = x**2 * (3 - 2 * x), x**2 * (x - 1)
        return a * y0 + b * h * f0 + c * y1 + d * h * f1
