"""The solver for gradient flow of diagonal networks on logistic loss, in dual variables."""

from typing import Generic, cast

from torch import Tensor

from natgrad.flows._follow import Ended, Path, Settings, Solver
from natgrad.flows._methods.dual import DualFlow
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached
from natgrad.likelihoods import Bernoulli
from natgrad.parametrizations import Diagonal, Direct
from natgrad.parametrizations.base import P
from natgrad.stopping import Status


class DualSolver(Solver):
    """`DualFlow`: a single layer is a diagonal network of depth one."""

    name = "dual"
    purpose = "euclidean flows of Direct or Diagonal with one logit under Bernoulli"

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether this is gradient flow of a diagonal network on logistic loss."""
        return (
            problem.is_euclidean
            and isinstance(problem.likelihood, Bernoulli)
            and isinstance(problem.parametrization, (Direct, Diagonal))
            and problem.batch[0].is_floating_point()
            and problem.outputs.ndim == 1
        )

    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path."""
        return _DualPath(problem, end, 1e-3 if settings.rtol is None else settings.rtol)


class _DualPath(Path[P], Generic[P]):
    """A `DualFlow` whose layers have the shape of the parameters."""

    method = "dual variables, Runge–Kutta–Chebyshev"

    def __init__(self, problem: Problem[P], end: float, rtol: float) -> None:
        x, y = problem.batch
        signs = problem.likelihood.prepare(problem.outputs, y)[1]
        w = cast(Tensor, problem.params)
        self._shape, self._end = w.shape, end
        layers, scale = w.reshape(-1, x.shape[1]), problem.likelihood.scale(len(x))
        self._flow = DualFlow(signs * x, layers, scale, rtol=rtol)
        self.t = 0.0

    def begin(self) -> None:
        """Do nothing: the flow has evaluated its first gradient."""

    def step(self) -> Ended | None:
        """Take one step; return None, or why there is none."""
        failure = self._flow.step(self._end)
        if failure is not None:
            return Ended(Status.STALLED, f"at t = {self.t:.6g}: {failure}")
        self.t = self._flow.t
        return None

    def at(self, t: float) -> P:
        """Return the parameters at a time within the last step."""
        return cast(P, self._flow.at(t).reshape(self._shape))

    @property
    def params(self) -> P:
        """Return the parameters now."""
        return cast(P, self._flow.w.reshape(self._shape))

    @property
    def evaluations(self) -> int:
        """Return the number of gradients."""
        return self._flow.evaluations

    @property
    def error(self) -> float:
        """Return the sum of local error estimates."""
        return self._flow.error
