"""Steps of one length."""

from dataclasses import dataclass

from natgrad._checks import number
from natgrad._named import named
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import Stepped, StepRule, moved
from natgrad.parametrizations.base import P


@named
def constant(size: float) -> StepRule:
    """Return fixed steps of length η, as both papers take them.

    Args:
        size: η.

    Example:
        >>> constant(0.5)
        Constant(size=0.5)
    """
    return Constant(size)


@dataclass(frozen=True)
class Constant(StepRule):
    """Fixed steps along the direction."""

    size: float
    looks_at_loss = False

    def __post_init__(self) -> None:
        """Raise if the options give no descent."""
        number(self.size, "a step size", low=0, low_open=True)

    def take(self, problem: Problem[P], params: P, loss: float, size: float) -> Stepped[P]:
        """Return the result of the step."""
        after = moved(params, problem.velocity(params), size)
        return Stepped(after, *problem.loss(after), size, size)
