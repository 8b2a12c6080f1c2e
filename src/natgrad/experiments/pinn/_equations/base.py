"""The interface of equations that networks solve."""

from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

__all__ = ["Equation", "Points", "derivative", "second", "spread", "uniform"]

Points = dict[str, Tensor]
"""Tensors of points by the name of their block."""


class Equation(ABC):
    """A differential equation with a known solution.

    Attributes:
        features: Number of inputs of the network.
        weights: Weights of the blocks of residuals, if they are not one.
        coefficients: Unknown numbers to find, with their true values.
    """

    features: int = 2
    weights: dict[str, float] = {}  # noqa: RUF012

    def field(self, net: Module, x: Tensor) -> Tensor:
        """Return the approximate solution of a network at points `(n, d)`, shape `(n,)`."""
        out: Tensor = net(x)[:, 0]
        return out

    @abstractmethod
    def fixed(self, size: int) -> Points:
        """Return points on a grid, `size` per axis, or `size` drawn points."""

    @abstractmethod
    def drawn(self, size: int, generator: torch.Generator) -> Points:
        """Return the given number of points, drawn uniformly."""

    @abstractmethod
    def residuals(self, net: Module, points: Points) -> dict[str, Tensor]:
        """Return the residuals, by block."""

    @abstractmethod
    def truth(self, x: Tensor) -> Tensor:
        """Return the solution at points `(n, d)`."""

    @abstractmethod
    def judged(self) -> Tensor:
        """Return the points on which errors are measured; no fit uses them."""

    def blocks(self, net: Module, points: Points) -> dict[str, Any]:
        """Return residuals with their weights, in the form that `GaussNewton` accepts."""
        found = self.residuals(net, points)
        return {name: (r, self.weights.get(name, 1.0)) for name, r in found.items()}

    def error(self, net: Module) -> float:
        """Return the relative L2 error."""
        x = self.judged()
        truth = self.truth(x)
        with torch.no_grad():
            return float((self.field(net, x) - truth).norm() / truth.norm())


def derivative(u: Tensor, x: Tensor) -> Tensor:
    """Return ∂uₙ/∂xₙ, `(n, d)`, differentiable."""
    (found,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return found


def second(slope: Tensor, x: Tensor, axis: int) -> Tensor:
    """Return ∂²uₙ/∂xₙₐ², `(n,)`, from the first derivatives."""
    return derivative(slope[:, axis], x)[:, axis]


def uniform(n: int, d: int, generator: torch.Generator) -> Tensor:
    """Return points of the unit cube."""
    return torch.rand(n, d, dtype=torch.float64, generator=generator)


def spread(n: int, d: int, generator: torch.Generator) -> Tensor:
    """Return points of the unit cube that leave fewer gaps: Sobol's sequence, scrambled."""
    seed = int(torch.randint(2**31, (1,), generator=generator))
    source = torch.quasirandom.SobolEngine(d, True, seed)  # type: ignore[no-untyped-call]
    return source.draw(n, dtype=torch.float64)


def middles(n: int) -> Tensor:
    """Return the midpoints of n equal parts of [0, 1]."""
    return (torch.arange(n, dtype=torch.float64) + 0.5) / n
