"""The solver for gradient flow of diagonal networks on logistic loss, in dual variables."""

import math
from typing import Generic, cast

import torch
from torch import Tensor

from natgrad.flows._follow import Ended, Path, Settings, Solver
from natgrad.flows._methods.dual.flow import DualFlow
from natgrad.flows._methods.steppers.stepper import accuracy
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached
from natgrad.likelihoods import Bernoulli
from natgrad.parametrizations import Diagonal, Direct
from natgrad.parametrizations.base import P
from natgrad.stopping import Status


def is_diagonal_logistic(problem: Problem[P]) -> bool:
    """Return whether this is gradient flow of a diagonal network on logistic loss."""
    return (
        problem.is_euclidean
        and isinstance(problem.likelihood, Bernoulli)
        and isinstance(problem.parametrization, (Direct, Diagonal))
        and problem.batch[0].is_floating_point()
        and problem.outputs.ndim == 1
    )


class DualSolver(Solver):
    """`DualFlow`: a single layer is a diagonal network of depth one."""

    name = "dual"
    purpose = "euclidean flows of Direct or Diagonal with one logit under Bernoulli"
    default_rtol = 1e-3

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether this is gradient flow of a diagonal network on logistic loss."""
        return is_diagonal_logistic(problem)

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `auto` should choose it for problems that it suits."""
        if not self.suits(problem):
            return None
        return f"for {problem.batch[0].shape[1]} features at rtol = {rtol:g}"

    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path."""
        rtol = self.default_rtol if settings.rtol is None else settings.rtol
        return _DualPath(problem, reached, end, accuracy(self.name, rtol))


class _DualPath(Path[P], Generic[P]):
    """A `DualFlow` whose layers have the shape of the parameters.

    Inputs whose squares would leave the range of their dtype are measured in other units: X/c^L,
    layers c w and time c² t follow the same flow. c is a power of two, so nothing is rounded.
    """

    method = "dual variables, Runge–Kutta–Chebyshev"

    def __init__(self, problem: Problem[P], reached: Reached[P], end: float, rtol: float) -> None:
        x, y = problem.batch
        signs = problem.likelihood.prepare(problem.outputs, y)[1]
        w = cast(Tensor, reached.params)
        self._reached = reached
        self.method = f"{reached.method}, then {self.method}" if reached.method else self.method
        layers = w.reshape(-1, x.shape[1])
        self._shape, self._end = w.shape, end
        self._unit = _unit(x, len(layers), end - reached.t)
        scale = problem.likelihood.scale(len(x))
        signed = signs * (x if self._unit == 1 else x / self._unit ** len(layers))
        self._flow = DualFlow(signed, layers * self._unit, scale, rtol=rtol)
        self.t = reached.t

    def _inner(self, t: float) -> float:
        """Return the flow's time, which starts at zero."""
        return (t - self._reached.t) * self._unit**2

    def begin(self) -> None:
        """Do nothing: the flow has evaluated its first gradient."""

    def step(self) -> Ended | None:
        """Take one step; return None, or the reason why there is none."""
        end = self._inner(self._end)
        failure = self._flow.step(end)
        if failure is not None:
            return Ended(Status.STALLED, f"at t = {self.t:.6g}: {failure}")
        ended = self._flow.t >= end
        self.t = self._end if ended else self._reached.t + self._flow.t / self._unit**2
        return None

    def at(self, t: float) -> P:
        """Return the parameters at a time within the last step."""
        return cast(P, self._flow.at(self._inner(t)).reshape(self._shape) / self._unit)

    @property
    def params(self) -> P:
        """Return the parameters now."""
        return cast(P, self._flow.w.reshape(self._shape) / self._unit)

    @property
    def evaluations(self) -> int:
        """Return the number of gradients."""
        return self._reached.evaluations + self._flow.evaluations

    @property
    def error(self) -> float:
        """Return the sum of local error estimates."""
        return self._flow.error


def _unit(x: Tensor, depth: int, end: float) -> float:
    """Return c, the power of two by which layers are multiplied; 1 for inputs of usual size."""
    size, digits = float(x.abs().max()), math.log2(torch.finfo(x.dtype).max)
    if size == 0 or abs(math.log2(size)) < digits / 5:
        return 1.0
    room = digits - 2 - max(math.log2(end), 0.0) if math.isfinite(end) else digits / 2
    return 2.0 ** min(round(math.log2(size) / depth), math.floor(room / 2))
