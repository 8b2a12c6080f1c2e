"""The problem that descents and flows share: a model, a loss, and a direction."""

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Generic, cast

from torch import Tensor

from natgrad._checks import number
from natgrad.directions import euclidean, natural
from natgrad.directions._batch import check_problem
from natgrad.directions._euclidean import descent
from natgrad.directions._natural import NaturalField, prepare
from natgrad.errors import NonFiniteError
from natgrad.flows._schedules import DampingSchedule
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations._arguments import check_same_structure
from natgrad.parametrizations.base import P, Parametrization, detach, leaves, rebuild

Direction = Callable[..., Any]
"""`euclidean`, `natural`, or a function with their arguments."""


@dataclass(frozen=True)
class Problem(Generic[P]):
    """A direction, a loss, a model, its parameters at time 0 and the data.

    Attributes:
        direction: The direction to follow.
        likelihood: The loss.
        parametrization: The model.
        params: Parameters at time 0.
        batch: Inputs and labels.
        options: Keywords of the direction.
        weight: Factor on the loss and its gradient; not 1 for mini-batches of a summed loss.
        time: The present time, for damping that follows a schedule.
    """

    direction: Direction
    likelihood: Likelihood
    parametrization: Parametrization[P]
    params: P
    batch: tuple[Tensor, Tensor]
    options: dict[str, Any] = field(default_factory=dict)
    weight: float = 1.0
    time: float = 0.0

    @classmethod
    def checked(
        cls,
        direction: Direction,
        likelihood: Likelihood,
        parametrization: Parametrization[P],
        params: P,
        batch: tuple[Tensor, Tensor],
        options: dict[str, Any],
    ) -> "Problem[P]":
        """Return the problem after checking that its parts fit together, and its first loss."""
        params = detach(params)
        check_problem(likelihood, parametrization, params, batch)
        problem = cls(direction, likelihood, parametrization, params, batch, options)
        if problem.is_natural:
            _ = problem._natural  # refuses wrong options now, not as a step that fails
        if not math.isfinite(problem.loss(params)[0]):
            raise NonFiniteError(
                "the loss at the start must be finite, but overflows. Try smaller parameters or "
                "inputs, or a wider dtype."
            )
        return problem

    def on(self, samples: Tensor) -> "Problem[P]":
        """Return the problem on some of the samples, its loss an estimate of the whole one."""
        x, y = self.batch
        samples = samples.to(x.device)
        n, m = len(x), len(samples)
        weight = self.likelihood.scale(n) * n / (self.likelihood.scale(m) * m)
        return replace(self, batch=(x[samples], y[samples]), weight=weight)

    @property
    def is_natural(self) -> bool:
        """Return whether this is natural gradient flow or descent."""
        return self.direction is natural

    @property
    def is_euclidean(self) -> bool:
        """Return whether this is gradient flow or descent."""
        return self.direction is euclidean

    @property
    def outputs(self) -> Tensor:
        """Return the outputs at time 0."""
        return self.parametrization.predict(self.params, self.batch[0])

    @cached_property
    def _natural(self) -> NaturalField[P]:
        """Return the natural direction as a function of parameters, arguments checked once."""
        problem = (self.likelihood, self.parametrization, self.params, self.batch)
        options = dict(self.options)
        if self.schedule is not None:
            options["damping"] = self.schedule.at(self.time, self.loss(self.params)[0])
        return prepare(*problem, **options)

    @property
    def schedule(self) -> DampingSchedule | None:
        """Return the schedule of the damping, if it has one."""
        damping = self.options.get("damping") if self.is_natural else None
        return damping if isinstance(damping, DampingSchedule) else None

    def at(self, t: float) -> "Problem[P]":
        """Return the problem at another time, with what was prepared."""
        if self.schedule is None:
            return self
        later = copy(self)
        object.__setattr__(later, "time", t)
        return later

    def velocity(self, params: P) -> P:
        """Return the direction at parameters."""
        if self.is_euclidean:
            v = descent(self.likelihood, self.parametrization, params, *self.batch)
            return v if self.weight == 1 else scaled(v, self.weight)
        if self.schedule is not None:
            damping = self.schedule.at(self.time, self.loss(params)[0])
            return replace(self._natural, damping=number(damping, "damping", low=0))(params)
        if self.is_natural:
            return self._natural(params)
        v = self.direction(
            self.likelihood, self.parametrization, params, self.batch, **self.options
        )
        check_same_structure(v, params)
        return cast(P, v)

    def loss(self, params: P) -> tuple[float, Tensor]:
        """Return the loss and the outputs at parameters."""
        outputs = self.parametrization.predict(params, self.batch[0])
        return self.weight * float(self.likelihood(outputs, self.batch[1])), outputs

    def slope(self, params: P, v: P) -> float:
        """Return the derivative of the loss along v."""
        x, y = self.batch
        gradient = self.likelihood.gradient(self.parametrization.predict(params, x), y)
        return self.weight * float((gradient * self.parametrization.jvp(params, x, v)).sum())


def scaled(params: P, factor: float) -> P:
    """Return parameters times a number."""
    return rebuild([factor * leaf for leaf in leaves(params)], params)
