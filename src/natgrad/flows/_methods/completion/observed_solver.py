"""The solver for natural gradient flow of matrix completion, the Fisher over observed entries."""

from typing import Generic, cast

import torch

from natgrad.flows._follow import Ended, Path, Settings, Solver
from natgrad.flows._methods.completion.observed_natural import Factors, ObservedFlow
from natgrad.flows._methods.completion.solver import is_completion
from natgrad.flows._methods.steppers.stepper import accuracy
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached
from natgrad.parametrizations.base import P, leaves

_LOOSE = 1e-3  # for tighter tolerances DOP853, of order eight, is faster


class ObservedSolver(Solver):
    """Heun's method, each velocity by conjugate gradients on the observed entries."""

    name = "observed"
    purpose = "natural flows of matrix completion with fisher_over='batch' and min_norm, float64"

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether the Fisher is that of the observed entries."""
        return (
            problem.is_natural
            and is_completion(problem)
            and problem.options.get("fisher_over") == "batch"
            and problem.options.get("selection", "min_norm") == "min_norm"
            and not problem.options.get("damping")
            and problem.options.get("metric", "fisher") == "fisher"
            and len(leaves(problem.params)) > 1
            and all(w.dtype == torch.float64 for w in leaves(problem.params))
        )

    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `auto` should choose it for a problem that needs few digits."""
        loose = self.suits(problem) and rtol >= _LOOSE
        return "for natural matrix completion over observed entries" if loose else None

    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path."""
        return _ObservedPath(problem, end, 1e-6 if settings.rtol is None else settings.rtol)


class _ObservedPath(Path[P], Generic[P]):
    """An `ObservedFlow`."""

    method = "observed entries, Heun, conjugate gradients"

    def __init__(self, problem: Problem[P], end: float, rtol: float) -> None:
        x, y = problem.batch
        factors = cast(Factors, problem.params)
        tolerance = accuracy("observed", rtol)
        values = y.reshape(-1).to(factors[0])
        self._flow = ObservedFlow(factors, x, values, tolerance, min(1e-4, 0.1 * tolerance))
        self.t, self._end = 0.0, end

    def begin(self) -> None:
        """Find the first velocity."""
        self._flow.start()

    def step(self) -> Ended | None:
        """Take one step."""
        self._flow.step(self._end)
        self.t = self._flow.t
        return None

    def at(self, t: float) -> P:
        """Return the parameters at a time within the last step."""
        return cast(P, self._flow.at(t))

    @property
    def params(self) -> P:
        """Return the parameters now."""
        return cast(P, self._flow.factors)

    @property
    def evaluations(self) -> int:
        """Return the number of velocities."""
        return self._flow.evaluations

    @property
    def error(self) -> float:
        """Return the sum of local error estimates."""
        return self._flow.error
