"""Gradient flow of deep matrix completion, with explicit gradients.

Loss ½ Σ (β − y)² over observed entries, β = W₁⋯W_L. Factors are in one buffer, gradients and
stages are written in place. The error of a step is measured per layer, relative to its norm:
factors that start at 1e-9 leave their saddle as accurately as factors that start at one.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from natgrad.errors import DtypeError, InvalidInputError, ShapeError
from natgrad.flows._methods.completion.chain import Chain
from natgrad.flows._methods.completion.observed import residual
from natgrad.flows._methods.steppers.rkc import SpectralRadius, coefficients, stages
from natgrad.flows.trajectory import Trajectory
from natgrad.parametrizations import MatrixProduct
from natgrad.parametrizations._products.entries import check_entries
from natgrad.stopping import Status

Factors = tuple[Tensor, ...]
Record = Mapping[str, Callable[[Factors], Tensor]]

_LOOK = 40  # evaluations between two estimates of the spectral radius, each of two or three
_LONG = 20  # stages from which errors are also estimated at
_CHECKS = (0.25, 0.5, 0.75)  # these parts of them: after 1/16, 1/4 and 9/16 of the step


@torch.no_grad()
def completion_flow(
    factors: Factors,
    positions: Tensor,
    values: Tensor,
    *,
    train_error: float = 1e-6,
    until: float = math.inf,
    rtol: float = 1e-2,
    max_evaluations: int = 100_000,
    record: Record | None = None,
    watch: Callable[[float, Factors], bool] | None = None,
) -> Trajectory[Factors]:
    """Follow Ẇ = −∇L from the factors until the observed entries fit.

    L = ½ Σ (β − y)² over the observed entries of β = W₁⋯W_L. WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ is conserved.

    Runge–Kutta–Chebyshev of second order in the dtype of the factors. At rtol = 1e-2 float32 is
    enough: on 100 × 100 problems test errors agree with float64 at 1e-4 to a few percent if
    the flow itself is not chaotic (see the tests). Below rtol = 1e-4 use float64.

    Args:
        factors: W₁…W_L, matrices that chain.
        positions: Rows and columns of the observed entries, each at most once, shape `(n, 2)`.
        values: Their values, shape `(n,)`.
        train_error: Stop at this mean squared error on them.
        until: Stop at this time.
        rtol: Error of a step, relative to each layer's norm.
        max_evaluations: Give up (status stalled) after this number of gradients.
        record: Diagnostics to save at every step, by name: functions of the factors. Without any,
            only the last state is saved.
        watch: Called with time and factors after every step; the flow ends when it returns True.
            The factors are views: copy them to keep them.

    Returns:
        The trajectory; its losses are ½ Σ (β − y)². `recorded["radius"]` is the largest spectral
        radius of the flow's Jacobian so far: descent with fixed steps is stable below 2/radius.

    Raises:
        InvalidInputError: If factors, positions or values do not fit together.

    Example:
        >>> product = MatrixProduct(2)
        >>> start = product.init_gaussian((3, 3), generator=torch.Generator().manual_seed(0))
        >>> corner = torch.tensor([[0, 0], [0, 1], [1, 0]])
        >>> flow = completion_flow(start, corner, torch.tensor([4.0, 2.0, 2.0]).double())
        >>> flow.status, round(float(product.hypothesis(flow.final)[1, 1]), 1)
        (<Status.CONVERGED: 'converged'>, 1.0)
    """
    check_completion(factors, positions, values)
    if not (train_error > 0 and until > 0 and 0 < rtol < 1 and max_evaluations > 0):
        raise InvalidInputError(
            "train_error, until and max_evaluations must be positive and rtol in (0, 1), but are "
            f"{train_error!r}, {until!r}, {max_evaluations!r} and {rtol!r}."
        )
    shape = (factors[0].shape[0], factors[-1].shape[1])
    chain = Chain(factors, residual(positions, values, shape))
    goal = 0.5 * train_error * len(values)
    recorder = _Saver(chain, dict(record or {}))
    stepper = _Stepper(chain, rtol)
    loss = stepper.first_loss
    recorder.save(0.0, loss, stepper.largest_radius)
    status, detail = Status.STALLED, f"gave up after {max_evaluations} evaluations"
    while stepper.evaluations < max_evaluations:
        failure = stepper.step(until)
        if failure is not None:
            status, detail = Status.STALLED, f"at t = {stepper.t:.6g}: {failure}"
            break
        loss = 0.5 * chain.residual.sum_of_squares()
        if not math.isfinite(loss):
            status, detail = Status.DIVERGED, f"the loss overflows at t = {stepper.t:.6g}"
            break
        if recorder.wanted:
            recorder.save(stepper.t, loss, stepper.largest_radius)
        if loss <= goal:
            status, detail = Status.CONVERGED, f"the entries fit at t = {stepper.t:.6g}"
            break
        if stepper.t >= until:
            status, detail = Status.TIME_REACHED, f"time {until:g} reached"
            break
        if watch is not None and watch(stepper.t, tuple(chain.split(chain.state))):
            status, detail = Status.CONVERGED, f"stopped by its watch at t = {stepper.t:.6g}"
            break
    recorder.save(stepper.t, loss, stepper.largest_radius)
    return recorder.finish(status, detail, stepper)


def check_completion(factors: Factors, positions: Tensor, values: Tensor) -> None:
    """Raise unless factors chain, and positions and values fit them."""
    MatrixProduct(len(factors)).check(factors)
    rows, columns = factors[0].shape[0], factors[-1].shape[1]
    if values.ndim != 1 or len(values) == 0 or len(values) != len(positions):
        raise ShapeError(
            f"there must be one value per position and at least one, but there are "
            f"{tuple(values.shape)} values and {tuple(positions.shape)} positions."
        )
    check_entries(positions, rows, columns, factors[0].device)
    if values.dtype != factors[0].dtype:
        raise DtypeError(f"values are {values.dtype} but factors {factors[0].dtype}.")
    if not bool(torch.isfinite(values).all()):
        raise InvalidInputError("observed values must be finite; drop missing ones.")
    index = positions[:, 0].long() * columns + positions[:, 1].long()
    if len(torch.unique(index)) < len(index):
        raise InvalidInputError("a position is observed twice; average its values first.")


class _Taken(NamedTuple):
    """A step: its length, its error over the tolerance, the state after it, and −∇L there."""

    h: float
    error: float
    y: Tensor
    slope: Tensor


class _Stepper:
    """Runge–Kutta–Chebyshev in place, with the predictive step controller of its authors.

    A flow that leaves a saddle changes its spectral radius tenfold within a few long steps, and a
    step that is too long for its stages explodes. The radius is therefore estimated by cost, not by
    number of steps.
    """

    def __init__(self, chain: Chain, rtol: float) -> None:
        self._chain, self._rtol = chain, rtol
        self.t, self.steps, self.error = 0.0, 0, 0.0
        self._own_evaluations = 0
        self._y = chain.state
        self._f = torch.empty_like(self._y)
        self._work = [torch.empty_like(self._y) for _ in range(5)]
        self._radius = SpectralRadius()
        self._looked = 0
        self._evaluate(self._y, self._f)
        self.first_loss = 0.5 * chain.residual.sum_of_squares()
        self.largest_radius = 0.0
        self._update_radius()
        # The speed relative to the state limits the first step; the error limits later ones.
        speed = float((chain.norms(self._f) / chain.norms(self._y)).max())
        self._h = min(1 / max(self._radius.value, 1e-300), 0.1 / max(speed, 1e-300))
        self._last: tuple[float, float] | None = None

    @property
    def evaluations(self) -> int:
        return self._own_evaluations + self._radius.evaluations

    def _evaluate(self, y: Tensor, out: Tensor) -> None:
        self._own_evaluations += 1
        self._chain.field(y, out)

    def _fresh(self, t: float, y: Tensor) -> Tensor:
        out = torch.empty_like(y)
        self._chain.field(y, out)
        return out

    def step(self, end: float) -> str | None:
        """Take one step, shortened until its error is within tolerance."""
        if self.evaluations - self._looked >= _LOOK:
            self._update_radius()
        while True:
            h = min(self._h, end - self.t)
            if self.t + h == self.t:
                return "the step size fell below the spacing of numbers"
            taken, error = self._try(h)
            if taken is not None:
                break
            self._h = h * (max(0.1, 0.8 * error ** (-1 / 3)) if math.isfinite(error) else 0.1)
            self._last = None
            self._update_radius()
        shorter, h = taken.h < h, taken.h
        self._h = h * min(self._growth(taken.error, h), 1.0 if shorter else math.inf)
        self._last = (taken.error, h)
        self._y.copy_(taken.y)
        self._f.copy_(taken.slope)
        self.t, self.steps = self.t + h, self.steps + 1
        self.error += self._rtol * taken.error
        if shorter:
            self._update_radius()
        return None

    def _try(self, h: float) -> tuple["_Taken | None", float]:
        """Return the state after h, or after a part of h if the error grows too large.

        Every stage approximates the flow to second order at its own time, so the first part of
        a long step that fails can be kept. If no part is accurate, return None and the error.
        """
        s = max(2, stages(h, self._radius.value))
        k = coefficients(s)
        checks = {round(part * s) for part in _CHECKS} if s >= _LONG else set()
        before, now, f, kept_y, kept_f = self._work
        before.copy_(self._y)
        torch.add(self._y, self._f, alpha=k.first * h, out=now)
        found: _Taken | None = None
        for i in range(s - 1):
            self._evaluate(now, f)
            if i + 1 in checks:
                gone = k.c[i + 1] * h
                error = self._error(now, f, gone)
                if not error <= 1:
                    return found, error
                kept_y.copy_(now)
                kept_f.copy_(f)
                found = _Taken(gone, error, kept_y, kept_f)
            before.mul_(k.nu[i]).add_(now, alpha=k.mu[i])
            before.add_(self._y, alpha=1 - k.mu[i] - k.nu[i])
            before.add_(f, alpha=k.mu_tilde[i] * h).add_(self._f, alpha=k.gamma_tilde[i] * h)
            now, before = before, now
        self._evaluate(now, f)
        error = self._error(now, f, h)
        return (_Taken(h, error, now, f) if error <= 1 else found), error

    def _error(self, moved: Tensor, slope: Tensor, h: float) -> float:
        """Return the largest local error of a layer over its tolerance."""
        estimate = (self._y - moved).mul_(0.8)
        estimate.add_(self._f, alpha=0.4 * h).add_(slope, alpha=0.4 * h)
        norms = self._chain.norms
        size = torch.maximum(norms(self._y), norms(moved))
        return float((norms(estimate) / (self._rtol * size)).max())

    def _growth(self, error: float, h: float) -> float:
        plain: float = max(error, 1e-8) ** (-1 / 3)
        if self._last is None:
            return 0.8 * min(6.0, max(0.1, plain))
        # Errors that rise from step to step will keep rising: the flow is leaving a saddle.
        previous, length = self._last
        predicted = plain * (h / length) * math.cbrt(max(previous, 1e-8) / max(error, 1e-8))
        return 0.8 * min(6.0, max(0.1, min(plain, predicted)))

    def _update_radius(self) -> None:
        self._radius.update(self._fresh, self.t, self._y, self._f)
        self.largest_radius = max(self.largest_radius, self._radius.value / 1.2)
        self._looked = self.evaluations


class _Saver:
    """States and diagnostics of one run: every step if diagnostics are wanted, else the last."""

    def __init__(self, chain: Chain, record: dict[str, Callable[[Factors], Tensor]]) -> None:
        self._chain, self._record = chain, record
        self.wanted = bool(record)
        self._started = time.perf_counter()
        self._times: list[float] = []
        self._losses: list[float] = []
        self._states: list[Tensor] = []
        self._recorded: dict[str, list[Tensor]] = {"radius": [], **{name: [] for name in record}}

    def save(self, t: float, loss: float, radius: float) -> None:
        if self._times and self._times[-1] == t:
            return
        if not self.wanted:
            self._times, self._losses, self._states, self._recorded = [], [], [], {"radius": []}
        self._recorded["radius"].append(torch.tensor(radius, dtype=torch.float64))
        self._times.append(t)
        self._losses.append(loss)
        self._states.append(self._chain.state if not self.wanted else self._chain.state.clone())
        factors = tuple(self._chain.split(self._chain.state))
        for name, function in self._record.items():
            self._recorded[name].append(torch.as_tensor(function(factors)).detach().clone())

    def finish(self, status: Status, detail: str, stepper: _Stepper) -> Trajectory[Factors]:
        layers = [self._chain.split(state) for state in self._states]
        return Trajectory(
            times=torch.tensor(self._times, dtype=torch.float64),
            states=tuple(torch.stack(list(column)) for column in zip(*layers, strict=True)),
            losses=torch.tensor(self._losses, dtype=torch.float64),
            recorded={name: torch.stack(values) for name, values in self._recorded.items()},
            status=status,
            detail=detail,
            method="Runge–Kutta–Chebyshev, gradients written out",
            evaluations=stepper.evaluations,
            steps=stepper.steps,
            error_estimate=stepper.error,
            seconds=time.perf_counter() - self._started,
        )
