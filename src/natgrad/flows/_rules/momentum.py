"""The heavy ball."""

from typing import Any

from torch import Tensor

from natgrad._checks import flag, number
from natgrad._named import named
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.turned import Turned


@named
def momentum(
    size: float, *, mass: float = 0.9, nesterov: bool = False, decay: float = 0.0
) -> StepRule:
    """Return steps along m ← mass · m + direction, as `torch.optim.SGD` takes them.

    Args:
        size: Length η of the first step.
        mass: Share of the momentum that is kept, in [0, 1).
        nesterov: Whether to step along direction + mass · m.
        decay: Steps are η k^{−decay}.

    Example:
        >>> momentum(0.1)
        Momentum(size=0.1, decay=0.0, mass=0.9, nesterov=False)
    """
    return Momentum(size, mass, nesterov, decay)


class Momentum(Turned):
    """Steps along a decaying sum of directions."""

    def __init__(self, size: float, mass: float, nesterov: bool, decay: float) -> None:
        super().__init__(size, decay)
        self.mass = number(mass, "mass", low=0, high=1, high_open=True)
        self.nesterov = flag(nesterov, "nesterov")

    def turn(self, problem: Problem[Any], params: Any, v: list[Tensor]) -> list[Tensor]:
        """Return the momentum."""
        m = self.averaged("m", v, self.mass, 1.0)
        return [a + self.mass * b for a, b in zip(v, m, strict=True)] if self.nesterov else m
