"""The papers' discrete methods: step after step along a direction."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import flag, integer, number
from natgrad.directions import euclidean, natural
from natgrad.directions._batch import check_problem
from natgrad.directions._euclidean import descent
from natgrad.directions._natural import NaturalField, prepare
from natgrad.errors import InvalidInputError, NatgradError
from natgrad.flows._options import check_options
from natgrad.flows._recorder import Record, Recorder
from natgrad.flows.trajectory import Trajectory
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import (
    P,
    Parametrization,
    check_same_structure,
    detach,
    leaves,
    rebuild,
)
from natgrad.stopping import Progress, Rule, Status, as_rule


@dataclass(frozen=True)
class StepRule:
    """How long a step is.

    Attributes:
        size: First step length η.
        normalize: Step along −∇ log L instead of −∇L.
        grow: Factor on η after a step that Armijo's rule accepts.
        shrink: Factor on η while it does not; 1 takes every step as it is.
        midpoint: Step along the direction half a step ahead; for fixed steps only.
    """

    size: float
    normalize: bool = False
    grow: float = 1.0
    shrink: float = 1.0
    midpoint: bool = False

    def __post_init__(self) -> None:
        """Refuse steps that cannot descend."""
        number(self.size, "a step size", low=0, low_open=True)
        number(self.grow, "grow", low=1)
        number(self.shrink, "shrink", low=0, high=1, low_open=True)
        flag(self.normalize, "normalize")
        flag(self.midpoint, "midpoint")
        if self.midpoint and (self.normalize or self.grow != 1 or self.shrink != 1):
            raise InvalidInputError(
                "midpoint steps are fixed ones: leave normalize, grow and shrink as they are."
            )


def constant(size: float) -> StepRule:
    """Return fixed steps of length η, as both papers take them.

    Example:
        >>> constant(0.5).shrink
        1.0
    """
    return StepRule(size)


def midpoint(size: float) -> StepRule:
    """Return fixed steps of length η along the direction half a step ahead.

    They follow the flow to second order: at a fixed time natural gradient descent departs from
    reparametrisation invariance by O(η²) instead of O(η), for two directions a step.

    Example:
        >>> midpoint(0.1).midpoint
        True
    """
    return StepRule(size, midpoint=True)


def normalized(size: float = 0.1, *, grow: float = 1.1, shrink: float = 0.5) -> StepRule:
    """Return steps along −∇ log L with Armijo's rule: the loss falls by a factor, not an amount.

    On separable data it reaches the directions of gradient descent orders of magnitude sooner; its
    path differs from the flow's by the length of the steps.

    Example:
        >>> normalized().grow
        1.1
    """
    return StepRule(size, normalize=True, grow=grow, shrink=shrink)


@torch.no_grad()
def descend(
    direction: Callable[..., Any],
    likelihood: Likelihood,
    parametrization: Parametrization[P],
    params: P,
    batch: tuple[Tensor, Tensor],
    *,
    step: float | StepRule,
    until: float | Rule,
    save_every: int = 1,
    record: Record | None = None,
    max_steps: int = 10_000_000,
    **options: Any,
) -> Trajectory[P]:
    """Step params ← params + η · direction until a rule is met.

    Time is the sum of step lengths on the loss as reduced; a normalised step of η along
    −∇ log L takes the time in which the loss falls that far, Δt = η (1/L₁ − 1/L₀)/ln(L₀/L₁).

    Args:
        direction: `euclidean` or `natural`.
        likelihood: The loss.
        parametrization: The model.
        params: Parameters at the start.
        batch: Inputs and labels; full batch at every step.
        step: Step length η, or a `StepRule`.
        until: Final time, or a stopping rule.
        save_every: Save every so many steps (and the first and last).
        record: Diagnostics to save, by name: functions of the parameters.
        max_steps: Give up (status stalled) after so many steps.
        **options: Passed to `direction`: `selection`, `fisher_over` and `damping` of `natural`;
            `euclidean` has none.

    Returns:
        The trajectory; `error_estimate` is NaN, for a descent is not an approximation.

    Example:
        >>> from natgrad import Direct, Gaussian, euclidean
        >>> from natgrad.stopping import steps_reached
        >>> x, y = torch.eye(2), torch.tensor([1.0, 2.0])
        >>> args = (euclidean, Gaussian(reduction="sum"), Direct(), torch.zeros(2), (x, y))
        >>> descend(*args, step=0.5, until=steps_reached(1)).final
        tensor([0.5000, 1.0000])
    """
    params = detach(params)
    check_problem(likelihood, parametrization, params, batch)
    check_options(direction, options, descend)
    integer(save_every, "save_every", low=1)
    integer(max_steps, "max_steps", low=1)
    rule, steps_by = as_rule(until), step if isinstance(step, StepRule) else constant(step)
    recorder = Recorder(likelihood, parametrization, batch, None, record)
    model = _Model(direction, likelihood, parametrization, batch, options)
    t, steps, eta = 0.0, 0, steps_by.size
    loss = model.loss(params)[0]
    recorder.save(t, params)
    status, detail = Status.STALLED, f"gave up after {max_steps} steps"
    try:
        while steps < max_steps:
            v = model.direction(params)
            if steps_by.midpoint:
                v = model.direction(_moved(params, v, eta / 2))
            found = _step(model, params, v, steps_by, eta, loss)
            if found is None:
                status, detail = Status.STALLED, f"no step lowers the loss at t = {t:.6g}"
                break
            moved, after, outputs, eta = found
            if not math.isfinite(after):
                status, detail = Status.DIVERGED, f"the loss overflows at step {steps + 1}"
                break
            t += _elapsed(steps_by, eta, loss, after)
            params, loss, steps, eta = moved, after, steps + 1, eta * steps_by.grow
            if steps % save_every == 0:
                recorder.save(t, params)
            progress = Progress(
                t, steps, loss, params, outputs, batch[1], recorder.started, recorder.memory
            )
            if rule.met(progress):
                status, detail = rule.status, f"{rule.reason} after {steps} steps"
                break
    except NatgradError as error:
        status, detail = Status.DIVERGED, f"at step {steps + 1}: {error}"
    if not recorder.saved_at(t):
        recorder.save(t, params)
    return recorder.finish(
        status,
        detail,
        method="descent",
        evaluations=model.evaluations,
        steps=steps,
        error_estimate=float("nan"),
    )


class _Model:
    """Loss and direction at parameters, counting evaluations."""

    def __init__(
        self,
        direction: Callable[..., Any],
        likelihood: Likelihood,
        parametrization: Parametrization[Any],
        batch: tuple[Tensor, Tensor],
        options: dict[str, Any],
    ) -> None:
        self._direction, self._options = direction, options
        self._likelihood, self._parametrization, self._batch = likelihood, parametrization, batch
        self._natural: NaturalField[Any] | None = None  # its arguments are checked once
        self.evaluations = 0

    def direction(self, params: Any) -> Any:
        self.evaluations += 1
        if self._direction is euclidean:
            return descent(self._likelihood, self._parametrization, params, *self._batch)
        problem = (self._likelihood, self._parametrization, params, self._batch)
        if self._direction is natural:
            self._natural = self._natural or prepare(*problem, **self._options)
            return self._natural(params)
        v = self._direction(*problem, **self._options)
        check_same_structure(v, params)
        return v

    def loss(self, params: Any) -> tuple[float, Tensor]:
        outputs = self._parametrization.predict(params, self._batch[0])
        return float(self._likelihood(outputs, self._batch[1])), outputs

    def slope(self, params: Any, v: Any) -> float:
        """Return the derivative of the loss along v."""
        x, y = self._batch
        outputs = self._parametrization.predict(params, x)
        gradient = self._likelihood.gradient(outputs, y)
        return float((gradient * self._parametrization.jvp(params, x, v)).sum())


def _step(
    model: _Model, params: P, v: P, rule: StepRule, eta: float, loss: float
) -> tuple[P, float, Tensor, float] | None:
    """Return parameters after a step, their loss and outputs, and η; None if no step is found."""
    unit = 1 / loss if rule.normalize and loss > 0 else 1.0
    slope = model.slope(params, v) if rule.shrink < 1 else 0.0
    while True:
        moved = _moved(params, v, eta * unit)
        after, outputs = model.loss(moved)
        if rule.shrink == 1:
            return moved, after, outputs, eta
        goal = loss + 1e-4 * eta * unit * slope
        if rule.normalize and loss > 0:  # the same rule on log L
            goal = loss * math.exp(max(1e-4 * eta * unit * slope / loss, -700))
        if after <= goal:
            return moved, after, outputs, eta
        eta *= rule.shrink
        if eta < 1e-30:
            return None


def _moved(params: P, v: P, length: float) -> P:
    pairs = zip(leaves(params), leaves(v), strict=True)
    return rebuild([a + length * b for a, b in pairs], params)


def _elapsed(rule: StepRule, eta: float, before: float, after: float) -> float:
    if not rule.normalize or after <= 0 or after == before:
        return eta
    return eta * (1 / after - 1 / before) / math.log(before / after)
