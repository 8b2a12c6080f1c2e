"""Shampoo."""

from typing import Any

import torch
from torch import Tensor

from natgrad._checks import number
from natgrad._named import named
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.turned import Turned
from natgrad.linalg._powers import decomposed, from_eigen


@named
def shampoo(
    size: float, *, keep: float | None = None, eps: float = 0.0, decay: float = 0.0
) -> StepRule:
    """Return the steps of Shampoo (Gupta, Koren and Singer 2018) with exact roots.

    A matrix G of the direction becomes L^{−1/4} G R^{−1/4}, L and R the sums of G Gᵀ and GᵀG so
    far, or their averages. A vector is a matrix of one column: G becomes L^{−1/4} G R^{−1/4} with R
    a number.

    Args:
        size: Length η of the first step.
        keep: Share of the averages that is kept, in [0, 1); None sums, as the paper does. With
            `keep=0` it is spectral descent.
        eps: ε ≥ 0, added to L and R relative to their largest eigenvalue.
        decay: Steps are η k^{−decay}.

    Example:
        >>> shampoo(0.1, keep=0.9)
        Shampoo(size=0.1, decay=0.0, keep=0.9, eps=0.0)
    """
    return Shampoo(size, keep, eps, decay)


class Shampoo(Turned):
    """Steps along the direction, both sides of its matrices whitened by half."""

    def __init__(self, size: float, keep: float | None, eps: float, decay: float) -> None:
        super().__init__(size, decay)
        self.keep = None if keep is None else number(keep, "keep", low=0, high=1, high_open=True)
        self.eps = number(eps, "eps", low=0)

    def turn(self, problem: Problem[Any], params: Any, v: list[Tensor]) -> list[Tensor]:
        """Return L^{−1/4} G R^{−1/4} of every matrix."""
        matrices = [a.reshape(len(a), -1) if a.ndim else a.reshape(1, 1) for a in v]
        keep, take = (1.0, 1.0) if self.keep is None else (self.keep, 1 - self.keep)
        left = self.averaged("left", [g @ g.mT for g in matrices], keep, take)
        right = self.averaged("right", [g.mT @ g for g in matrices], keep, take)
        turned = [
            _root(a, self.eps) @ g @ _root(b, self.eps)
            for a, g, b in zip(left, matrices, right, strict=True)
        ]
        return [torch.reshape(u, a.shape) for u, a in zip(turned, v, strict=True)]


def _root(matrix: Tensor, eps: float) -> Tensor:
    """Return (M + ε s I)^{−1/4}, s the largest eigenvalue of M; without ε, on the range of M."""
    values, vectors = decomposed(matrix)
    return from_eigen(values, vectors, eps * float(values[-1]), -0.25)
