"""Steps along a transformed direction, with a memory of earlier steps."""

from abc import abstractmethod
from copy import copy
from typing import Any

from torch import Tensor

from natgrad._checks import number
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import Stepped, StepRule, moved
from natgrad.parametrizations.base import P, leaves, rebuild


class Turned(StepRule):
    """params ← params + η k^{−decay} · turn(direction) at step k.

    Attributes:
        decay: Steps shorten like k^{−decay}: ½ is the schedule of most theorems on margins.
        count: Steps taken.
        memory: What the rule remembers, by name: one tensor per parameter tensor.
    """

    looks_at_loss = False

    def __init__(self, size: float, decay: float = 0.0) -> None:
        self.size = number(size, "a step size", low=0, low_open=True)
        self.decay = number(decay, "decay", low=0)
        self.count = 0
        self.memory: dict[str, list[Tensor]] = {}

    def fresh(self) -> "Turned":
        """Return a copy of the rule with empty memory."""
        again = copy(self)
        again.count, again.memory = 0, {}
        return again

    def __repr__(self) -> str:
        """Return the options."""
        hidden = ("count", "memory")
        options = ", ".join(f"{k}={v!r}" for k, v in self.__dict__.items() if k not in hidden)
        return f"{type(self).__name__}({options})"

    def take(self, problem: Problem[P], params: P, loss: float, size: float) -> Stepped[P]:
        """Return the result of the step."""
        self.count += 1
        length = size * self.count**-self.decay
        along = self.turn(problem, params, leaves(problem.velocity(params)))
        after = moved(params, rebuild(along, params), length)
        return Stepped(after, *problem.loss(after), length, size)

    @abstractmethod
    def turn(self, problem: Problem[Any], params: Any, v: list[Tensor]) -> list[Tensor]:
        """Return the transformed direction, one tensor per parameter tensor."""

    def averaged(self, name: str, now: list[Tensor], keep: float, take: float) -> list[Tensor]:
        """Return keep · memory + take · now, and remember it; memory starts at zero."""
        before = self.memory.get(name)
        if before is None:
            after = [take * a for a in now]
        else:
            after = [keep * b + take * a for a, b in zip(now, before, strict=True)]
        self.memory[name] = after
        return after
