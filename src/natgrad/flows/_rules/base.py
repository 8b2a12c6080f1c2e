"""The interface of step rules: take one step, and set the length of the next one."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic

from torch import Tensor

from natgrad.errors import InvalidInputError
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import P, leaves, rebuild


@dataclass(frozen=True)
class Stepped(Generic[P]):
    """The result of a step.

    Attributes:
        params: Parameters after the step.
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

    A custom rule defines `size`, the length η of the first step, and `take`. The problem that
    `take` gets holds the samples of this step: all of them, or one mini-batch.

    Attributes:
        size: Length η of the first step.
        looks_at_loss: Whether `take` uses the loss that it is given. If not, the loss is NaN for
            mini-batches, which saves an evaluation.

    Example:
        >>> from natgrad.flows import constant
        >>> isinstance(constant(0.1), StepRule)
        True
    """

    size: float
    looks_at_loss: bool = True

    def __new__(cls, *_: Any, **__: Any) -> "StepRule":
        """Raise if a rule does not define how to step."""
        if cls is StepRule:
            raise InvalidInputError(
                "StepRule only describes step rules. Try constant(0.1), midpoint(0.1), armijo() or "
                "normalized() of natgrad.flows."
            )
        return super().__new__(cls)

    def fresh(self) -> "StepRule":
        """Return a copy of the rule without memory of earlier steps; `descend` starts with it."""
        return self

    @abstractmethod
    def take(self, problem: Problem[P], params: P, loss: float, size: float) -> Stepped[P] | None:
        """Return the result of a step of length `size`, or None if no step lowers the loss."""


def moved(params: P, v: P, length: float) -> P:
    """Return params + length · v."""
    pairs = zip(leaves(params), leaves(v), strict=True)
    return rebuild([a + length * b for a, b in pairs], params)
