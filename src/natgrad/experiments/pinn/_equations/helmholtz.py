"""The Helmholtz equation on the unit square."""

import math

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.experiments.pinn._equations.base import Points, derivative, second
from natgrad.experiments.pinn._equations.poisson import Poisson

__all__ = ["Helmholtz"]


class Helmholtz(Poisson):
    """Δu + k²u = f on [0, 1]² with u = 0 on the sides, k = 4π; u = sin πx sin 4πy.

    k² is not an eigenvalue of −Δ here (those are π²(m² + n²) with m, n ≥ 1), so u is unique.
    """

    wavenumber = 4 * math.pi

    def __init__(self) -> None:
        super().__init__(2, boundary=1000.0)

    def residuals(self, net: Module, points: Points) -> dict[str, Tensor]:
        """Return Δu + k²u − f inside and u on the sides."""
        x = points["interior"].requires_grad_()
        u = self.field(net, x)
        slope = derivative(u, x)
        k2 = self.wavenumber**2
        source = (k2 - 17 * math.pi**2) * self.truth(x.detach())
        return {
            "interior": second(slope, x, 0) + second(slope, x, 1) + k2 * u - source,
            "boundary": self.field(net, points["boundary"]),
        }

    def truth(self, x: Tensor) -> Tensor:
        """Return sin πx sin 4πy."""
        return torch.sin(math.pi * x[:, 0]) * torch.sin(4 * math.pi * x[:, 1])
