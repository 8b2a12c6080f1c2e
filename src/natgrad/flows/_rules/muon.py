"""Muon, with exact orthogonalization."""

from typing import Any

from torch import Tensor

from natgrad._named import named
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.momentum import Momentum
from natgrad.linalg.norms import Lp, Spectral


@named
def muon(size: float, *, mass: float = 0.95, nesterov: bool = True, decay: float = 0.0) -> StepRule:
    """Return the steps of Muon (Jordan and others 2024): momentum, its singular values set to one.

    The polar factor is exact, where the original iterates a polynomial. Vectors, which Muon leaves
    to another optimizer, are divided by their length.

    Args:
        size: Length η of the first step.
        mass: Share of the momentum that is kept, in [0, 1).
        nesterov: Whether to orthogonalize direction + mass · m.
        decay: Steps are η k^{−decay}.

    Example:
        >>> muon(0.1)
        Muon(size=0.1, decay=0.0, mass=0.95, nesterov=True)
    """
    return Muon(size, mass, nesterov, decay)


class Muon(Momentum):
    """Steps along the polar factor of the momentum."""

    def turn(self, problem: Problem[Any], params: Any, v: list[Tensor]) -> list[Tensor]:
        """Return the nearest orthogonal matrices."""
        m = super().turn(problem, params, v)
        return [(Spectral() if a.ndim == 2 else Lp(2)).peak(a) for a in m]
