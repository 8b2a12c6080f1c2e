"""The solver for natural gradient flow of logistic regression: Newton's method at every time."""

import math
from typing import Generic, cast

from torch import Tensor

from natgrad.errors import NatgradError
from natgrad.flows._follow import Ended, Path, Settings, Solver
from natgrad.flows._methods.logistic.flow import LogisticFlow
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached
from natgrad.likelihoods import Bernoulli
from natgrad.parametrizations import Direct
from natgrad.parametrizations.base import P
from natgrad.stopping import Status

_STEP = 0.2  # fraction of the time since t = −1: small enough to stop near the bound of a rule


class NewtonSolver(Solver):
    """Newton's method along the path of `LogisticFlow`."""

    name = "newton"
    purpose = "natural flows of Direct with one logit under Bernoulli, without further options"
    successor = "dop853"

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether this is natural gradient flow of logistic regression."""
        return (
            problem.is_natural
            and not problem.options
            and isinstance(problem.likelihood, Bernoulli)
            and isinstance(problem.parametrization, Direct)
            and problem.batch[0].is_floating_point()
            and problem.outputs.ndim == 1
        )

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `auto` should choose it for problems that it suits."""
        return "for a natural flow of logistic regression" if self.suits(problem) else None

    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path; it is accurate to 1e-11 for all settings."""
        return _NewtonPath(problem, end)


class _NewtonPath(Path[P], Generic[P]):
    """β(t) at times that grow by a factor; Newton's method finds each one on request."""

    method = "Newton path"

    def __init__(self, problem: Problem[P], end: float) -> None:
        self._problem, self._end = problem, end
        self.t, self._steps, self._lost = 0.0, 0, False
        self._flow: LogisticFlow | None = None

    def begin(self) -> None:
        """Find the rank of the data."""
        x, y = self._problem.batch
        beta = cast(Tensor, self._problem.params)
        self._flow = LogisticFlow(beta, x, self._problem.likelihood.prepare(x @ beta, y)[1])

    def step(self) -> Ended | None:
        """Choose the next time; return None, or why there is none."""
        now = min(self.t + _STEP * (1 + self.t), self._end)
        if math.isinf(now):
            return Ended(Status.STALLED, f"time overflows after t = {self.t:.6g}")
        self.t, self._steps = now, self._steps + 1
        return None

    def at(self, t: float) -> P:
        """Return the parameters at t."""
        assert self._flow is not None
        return cast(P, self._flow.at(t))

    @property
    def params(self) -> P:
        """Return the parameters now."""
        return self.at(self.t)

    @property
    def evaluations(self) -> int:
        """Return the number of factorized matrices."""
        return 0 if self._flow is None else self._flow.evaluations

    @property
    def spent(self) -> int:
        """Return what counts against `max_evaluations`: steps, where no matrix is factorized."""
        return max(self._steps, self.evaluations)

    @property
    def error(self) -> float:
        """Return the largest error of a margin, relative; NaN once Newton's method has failed."""
        return math.nan if self._lost or self._flow is None else self._flow.error

    def failed(self, error: NatgradError, t: float) -> Ended:
        """Return that the path failed, so that another solver may continue the flow."""
        self._lost = True
        return Ended(Status.STALLED, f"at t = {t:.6g}: {error}")
