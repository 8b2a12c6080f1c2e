"""Steps along −∇ log L."""

import math

from natgrad._named import named
from natgrad.flows._rules.armijo import Armijo
from natgrad.flows._rules.base import StepRule


@named
def normalized(size: float = 0.1, *, grow: float = 1.1, shrink: float = 0.5) -> StepRule:
    """Return steps along −∇ log L with Armijo's rule: the loss falls by a factor, not an amount.

    On separable data it reaches the directions of gradient descent orders of magnitude sooner; its
    path differs from the flow's by the length of the steps.

    Args:
        size: Length η of the first step.
        grow: Factor on η after a step.
        shrink: Factor on η while the loss does not fall enough; 1 takes every step as it is.

    Example:
        >>> normalized()
        Normalized(size=0.1, grow=1.1, shrink=0.5)
    """
    return Normalized(size, grow, shrink)


class Normalized(Armijo):
    """Armijo's rule on log L; a loss of zero is left as it is."""

    def _unit(self, loss: float) -> float:
        return 1 / loss if loss > 0 else 1.0

    def _goal(self, loss: float, change: float) -> float:
        return loss * math.exp(max(change / loss, -700)) if loss > 0 else loss + change

    def _elapsed(self, size: float, before: float, after: float) -> float:
        """Return the time in which the loss falls that far: see `descend`."""
        if not 0 < after < math.inf or after == before:
            return size
        return size * (1 / after - 1 / before) / math.log(before / after)
