"""A cap on how far one step may change the weights."""

import math
from collections.abc import Sequence

from torch import Tensor

from natgrad._checks import instance, number
from natgrad._named import named
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import Stepped, StepRule, moved
from natgrad.parametrizations.base import P, combine, leaves


@named
def capped(rule: StepRule, fraction: float = 0.1) -> StepRule:
    """Return the rule with steps shortened until no tensor changes by more than a fraction.

    Near a singular point a natural direction is very large. Capped steps pass it without a jump.
    A bias has few entries, and must be free to change sign: beside matrices a vector counts as if
    its entries were at least as large as the weights', in root mean square.

    Args:
        rule: Any step rule.
        fraction: Largest ‖Δw‖/‖w‖ of a parameter tensor w in one step.

    Example:
        >>> from natgrad.flows import constant
        >>> capped(constant(1.0), 0.1)
        Capped(Constant(size=1.0), 0.1)
    """
    return Capped(rule, fraction)


class Capped(StepRule):
    """Steps of another rule, shortened."""

    def __init__(self, rule: StepRule, fraction: float) -> None:
        self.rule = instance(rule, "rule", StepRule)
        self.fraction = number(fraction, "fraction", low=0, low_open=True)
        self.size, self.looks_at_loss = rule.size, rule.looks_at_loss

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"Capped({self.rule!r}, {self.fraction!r})"

    def fresh(self) -> "Capped":
        """Return the cap on a copy of the rule with empty memory."""
        return Capped(self.rule.fresh(), self.fraction)

    def take(self, problem: Problem[P], params: P, loss: float, size: float) -> Stepped[P] | None:
        """Return the result of the step, or of the part of it that the cap allows."""
        taken = self.rule.take(problem, params, loss, size)
        if taken is None:
            return None
        change = combine([taken.params, params], [1.0, -1.0])
        pairs = zip(_sizes(leaves(params)), leaves(change), strict=True)
        sizes = [(w, float(d.norm())) for w, d in pairs]
        allowed = [self.fraction * w / d for w, d in sizes if w > 0 and d > 0]
        share = min([1.0, *allowed])
        if share == 1.0:
            return taken
        after = moved(params, change, share)
        found = problem.loss(after)
        return Stepped(after, *found, share * taken.elapsed, taken.size, taken.directions)


def _sizes(tensors: Sequence[Tensor]) -> list[float]:
    """Return the norm of each tensor; vectors count as no smaller than parts of the matrices."""
    norms = [float(w.norm()) for w in tensors]
    matrices = [(n, w.numel()) for n, w in zip(norms, tensors, strict=True) if w.ndim > 1]
    if not matrices:
        return norms
    squares, counts = sum(n * n for n, _ in matrices), sum(count for _, count in matrices)
    entry = math.sqrt(squares / counts)
    return [
        n if w.ndim > 1 else max(n, entry * math.sqrt(w.numel()))
        for n, w in zip(norms, tensors, strict=True)
    ]
