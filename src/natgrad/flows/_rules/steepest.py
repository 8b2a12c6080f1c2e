"""Steepest descent in a norm: sign, coordinate, spectral and normalized gradient descent."""

from typing import Any

from torch import Tensor

from natgrad._checks import flag
from natgrad._named import named
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.turned import Turned
from natgrad.linalg.norms import Norm, as_norm


@named
def steepest(p: float | Norm, size: float, *, decay: float = 0.0, unit: bool = True) -> StepRule:
    """Return steepest descent in a norm, applied to each parameter tensor.

    With g the direction (−∇L for `euclidean`) the step is along v with ‖v‖ = 1 and ⟨g, v⟩ = ‖g‖*:
    normalized gradient descent (p = 2), sign descent (p = ∞), coordinate descent (p = 1), spectral
    descent (`Spectral()`). On separable data its margin in this norm tends to the largest.

    Args:
        p: A power in [1, ∞], or a norm of `natgrad.linalg.norms`.
        size: Length η of the first step.
        decay: Steps are η k^{−decay}; ½ is the schedule of the theorems.
        unit: Whether steps have length η; if not, they are ‖g‖* times longer.

    Example:
        >>> steepest(float("inf"), 0.1)
        Steepest(size=0.1, decay=0.0, norm=Lp(p=inf), unit=True)
    """
    return Steepest(p, size, decay, unit)


class Steepest(Turned):
    """Steps along the peak of the direction in a norm."""

    def __init__(self, p: float | Norm, size: float, decay: float, unit: bool) -> None:
        super().__init__(size, decay)
        self.norm, self.unit = as_norm(p), flag(unit, "unit")

    def turn(self, problem: Problem[Any], params: Any, v: list[Tensor]) -> list[Tensor]:
        """Return unit steps, or steps of the dual norm's length."""
        if self.unit:
            return [self.norm.peak(g) for g in v]
        return [self.norm.dual()(g) * self.norm.peak(g) for g in v]
