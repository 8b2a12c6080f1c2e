"""Steps that are shortened until the loss falls enough."""

from dataclasses import dataclass

from natgrad._checks import number
from natgrad._named import named
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import Stepped, StepRule, moved
from natgrad.parametrizations.base import P

_DECREASE = 1e-4  # fraction of the decrease that the slope predicts
_SHORTEST = 1e-30


@named
def armijo(size: float = 0.1, *, grow: float = 1.1, shrink: float = 0.5) -> StepRule:
    """Return steps shortened by Armijo's rule: the loss falls by 1e-4 of what its slope predicts.

    Args:
        size: Length η of the first step.
        grow: Factor on η after a step.
        shrink: Factor on η while the loss does not fall enough; 1 takes every step as it is.

    Example:
        >>> armijo(grow=2.0)
        Armijo(size=0.1, grow=2.0, shrink=0.5)
    """
    return Armijo(size, grow, shrink)


@dataclass(frozen=True)
class Armijo(StepRule):
    """Steps along the direction, shortened until the loss falls enough."""

    size: float
    grow: float
    shrink: float

    def __post_init__(self) -> None:
        """Raise if the options give no descent."""
        number(self.size, "a step size", low=0, low_open=True)
        number(self.grow, "grow", low=1)
        number(self.shrink, "shrink", low=0, high=1, low_open=True)

    def take(self, problem: Problem[P], params: P, loss: float, size: float) -> Stepped[P] | None:
        """Return the result of the longest step that Armijo's rule accepts; None if it is tiny."""
        v, unit = problem.velocity(params), self._unit(loss)
        slope = problem.slope(params, v) if self.shrink < 1 else 0.0
        while size >= _SHORTEST:
            there = moved(params, v, size * unit)
            after, outputs = problem.loss(there)
            if self.shrink == 1 or after <= self._goal(loss, _DECREASE * size * unit * slope):
                elapsed = self._elapsed(size, loss, after)
                return Stepped(there, after, outputs, elapsed, size * self.grow)
            size *= self.shrink
        return None

    def _unit(self, loss: float) -> float:
        """Return the length of a step of size one."""
        return 1.0

    def _goal(self, loss: float, change: float) -> float:
        """Return the largest loss allowed after a step with this predicted change."""
        return loss + change

    def _elapsed(self, size: float, before: float, after: float) -> float:
        """Return the time that a step takes."""
        return size
