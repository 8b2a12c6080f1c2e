"""Damping that changes along a flow or a descent."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from natgrad._checks import number
from natgrad._named import named
from natgrad.errors import InvalidInputError


class DampingSchedule(ABC):
    """Damping as a function of time and loss: made by `decaying_damping` or `loss_damping`.

    Pass it as `damping` to `integrate` or `descend` with `natural`. A custom schedule defines
    `at`, which returns λ ≥ 0.

    Example:
        >>> isinstance(decaying_damping(1.0), DampingSchedule)
        True
    """

    def __new__(cls, *_: Any, **__: Any) -> "DampingSchedule":
        """Raise if a schedule does not define its values."""
        if cls is DampingSchedule:
            raise InvalidInputError(
                "DampingSchedule only describes schedules. Try decaying_damping(1.0) or "
                "loss_damping(1.0, power=1.0) of natgrad.flows."
            )
        return super().__new__(cls)

    @abstractmethod
    def at(self, t: float, loss: float) -> float:
        """Return λ at a time, where the loss is `loss`."""


@named
def decaying_damping(damping: float, *, rate: float = 1.0) -> DampingSchedule:
    """Return λ(t) = λ₀ e^{−rate · t}.

    With rate one, natural gradient flow of `Direct` is exactly a ridge path: multiply
    (F + λ₀e^{−t}) β̇ = −∇L by eᵗ and integrate, −eᵗ ∇L(β) = −∇L(β₀) + λ₀ (β − β₀).

    Args:
        damping: λ₀ ≥ 0.
        rate: How fast it decays, ≥ 0.

    Example:
        >>> decaying_damping(2.0).at(0.0, loss=1.0)
        2.0
    """
    return _Decaying(number(damping, "damping", low=0), number(rate, "rate", low=0))


@named
def loss_damping(damping: float, *, power: float) -> DampingSchedule:
    """Return λ = λ₀ Lᵃ for the loss L.

    On separable data it determines the limit of logistic regression: a ≤ 1 gives the ℓ2 max margin.
    With a > 1 the limit is the shortest separator on a face of {b: yₙ xₙ·b ≥ 1}, often a vertex.

    Args:
        damping: λ₀ ≥ 0.
        power: a ≥ 0; zero is constant damping.

    Example:
        >>> loss_damping(2.0, power=2).at(0.0, loss=0.5)
        0.5
    """
    return _ByLoss(number(damping, "damping", low=0), number(power, "power", low=0))


@dataclass(frozen=True)
class _Decaying(DampingSchedule):
    damping: float
    rate: float

    def at(self, t: float, loss: float) -> float:
        return self.damping * math.exp(-self.rate * t)


@dataclass(frozen=True)
class _ByLoss(DampingSchedule):
    damping: float
    power: float

    def at(self, t: float, loss: float) -> float:
        return self.damping * math.pow(loss, self.power)
