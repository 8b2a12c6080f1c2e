"""Descent divided by the diagonal of the Fisher."""

from typing import Any

from torch import Tensor

from natgrad._checks import number
from natgrad._named import named
from natgrad.directions import Fisher
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.turned import Turned
from natgrad.parametrizations.base import leaves, unflatten


@named
def diagonal_fisher(size: float, *, damping: float = 0.0, decay: float = 0.0) -> StepRule:
    """Return steps along the direction divided by the diagonal of the Fisher, entry by entry.

    The diagonal is exact, over the samples of the step, reduced as the loss is. It is taken from
    the dense Fisher, so this is for models of at most a few thousand parameters.

    Args:
        size: Length η of the first step.
        damping: λ ≥ 0, added to the diagonal.
        decay: Steps are η k^{−decay}.

    Example:
        >>> diagonal_fisher(0.1, damping=0.01)
        DiagonalFisher(size=0.1, decay=0.0, damping=0.01)
    """
    return DiagonalFisher(size, damping, decay)


class DiagonalFisher(Turned):
    """Steps along the direction over the Fisher's diagonal."""

    def __init__(self, size: float, damping: float, decay: float) -> None:
        super().__init__(size, decay)
        self.damping = number(damping, "damping", low=0)

    def turn(self, problem: Problem[Any], params: Any, v: list[Tensor]) -> list[Tensor]:
        """Return v/(F + λ); an entry with F = λ = 0 is unchanged."""
        model = problem.parametrization
        fisher = Fisher(problem.likelihood, model, params, problem.batch[0]).dense().diagonal()
        weights = leaves(unflatten(problem.weight * fisher + self.damping, params))
        return [a / b.where(b > 0, b.new_ones(())) for a, b in zip(v, weights, strict=True)]
