"""What a step rule does: take one step, and say how long the next one should be."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic

from torch import Tensor

from natgrad.errors import InvalidInputError
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import P, leaves, rebuild


@dataclass(frozen=True)
class Stepped(Generic[P]):
    """Where a step leads.

    Attributes:
        params: Parameters after it.
        loss: Their loss.
        outputs: Their outputs.
        elapsed: The time that the step takes.
        size: Length of the next step.
        directions: Directions evaluated.
    """

    params: P
    loss: float
    outputs: Tensor
    elapsed: float
    size: float
    directions: int = 1


class StepRule(ABC):
    """How `descend` steps: made by `constant`, `armijo`, `adam` and the others of this module.

    A rule of your own defines `size`, the length η of the first step, and `take`. The problem that
    `take` gets holds the samples of this step: all of them, or one mini-batch.

    Attributes:
        size: Length η of the first step.
        looks_at_loss: Whether `take` uses the loss that it is given. If not, that is NaN at
            mini-batches, which saves its evaluation.

    Example:
        >>> from natgrad.flows import constant
        >>> isinstance(constant(0.1), StepRule)
        True
    """

    size: float
    looks_at_loss: bool = True

    def __new__(cls, *_: Any, **__: Any) -> "StepRule":
        """Refuse a rule that says nothing of how to step."""
        if cls is StepRule:
            raise InvalidInputError(
                "StepRule only describes step rules. Try constant(0.1), midpoint(0.1), armijo() or "
                "normalized() of natgrad.flows."
            )
        return super().__new__(cls)

    def fresh(self) -> "StepRule":
        """Return the rule without memory of earlier steps; `descend` begins with it."""
        return self

    @abstractmethod
    def take(self, problem: Problem[P], params: P, loss: float, size: float) -> Stepped[P] | None:
        """Return where a step of length `size` leads, or None if no step lowers the loss."""


def moved(params: P, v: P, length: float) -> P:
    """Return params + length · v."""
    pairs = zip(leaves(params), leaves(v), strict=True)
    return rebuild([a + length * b for a, b in pairs], params)
