"""The heat equation in one dimension, also with its coefficient unknown."""

import math

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.experiments.pinn._equations.base import (
    Equation,
    Points,
    derivative,
    middles,
    second,
    uniform,
)

__all__ = ["CONDUCTIVITY", "Heat"]

CONDUCTIVITY = 0.25


class Heat(Equation):
    """u_t = κ u_xx for x and t in [0, 1], u = sin πx at t = 0 and 0 at both ends.

    Args:
        conductivity: κ, a number or a tensor to be trained.
    """

    def __init__(self, conductivity: Tensor | float = CONDUCTIVITY) -> None:
        self.conductivity = conductivity
        self.weights = {"start": 4.0, "ends": 4.0}

    def fixed(self, size: int) -> Points:
        """Return a grid; the second axis is time."""
        t = middles(size)
        return _with_sides(torch.cartesian_prod(t, t), t, t)

    def drawn(self, size: int, generator: torch.Generator) -> Points:
        """Return points inside and on the sides."""
        sides = uniform(2, max(size // 12, 4), generator)
        return _with_sides(uniform(size, 2, generator), sides[0], sides[1])

    def residuals(self, net: Module, points: Points) -> dict[str, Tensor]:
        """Return u_t − κ u_xx inside, and the differences on the sides."""
        x = points["interior"].requires_grad_()
        slope = derivative(self.field(net, x), x)
        start = points["start"]
        return {
            "interior": slope[:, 1] - self.conductivity * second(slope, x, 0),
            "start": self.field(net, start) - torch.sin(math.pi * start[:, 0]),
            "ends": self.field(net, points["ends"]),
        }

    def truth(self, x: Tensor) -> Tensor:
        """Return e^{−κπ²t} sin πx at the true κ."""
        return torch.exp(-CONDUCTIVITY * math.pi**2 * x[:, 1]) * torch.sin(math.pi * x[:, 0])

    def judged(self) -> Tensor:
        """Return a grid of 60 × 60 that includes the sides."""
        t = torch.linspace(0, 1, 60, dtype=torch.float64)
        return torch.cartesian_prod(t, t)


def _with_sides(interior: Tensor, x: Tensor, t: Tensor) -> Points:
    ends = [torch.stack([torch.full_like(t, side), t], 1) for side in (0.0, 1.0)]
    start = torch.stack([x, torch.zeros_like(x)], 1)
    return {"interior": interior, "start": start, "ends": torch.cat(ends)}
