"""Burgers' equation with a shock."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import Module

from natgrad.experiments.pinn._equations.base import (
    Equation,
    Points,
    derivative,
    middles,
    second,
    spread,
)

__all__ = ["Burgers"]


class Burgers(Equation):
    """u_t + u u_x = ν u_xx on [−1, 1] × [0, 1], u = −sin πx at t = 0 and 0 at both ends.

    ν = 0.01/π. With the network N, u = −sin πx + t (1 − x²) (N(x, t) − N(−x, t)) has the right
    boundary values by construction, and is odd in x as the solution is. Otherwise nothing but a
    tiny residual holds the shock at x = 0. Points with x > 0 are enough. The reference is the
    Cole–Hopf solution, by Gauss–Hermite quadrature.
    """

    viscosity = 0.01 / math.pi

    def field(self, net: Module, x: Tensor) -> Tensor:
        """Return the ansatz."""
        place, time = x[:, 0], x[:, 1]
        mirrored = torch.stack([-place, time], 1)
        inside: Tensor = (net(x) - net(mirrored))[:, 0]
        return -torch.sin(math.pi * place) + time * (1 - place**2) * inside

    def fixed(self, size: int) -> Points:
        """Return a grid: half of `size` places, `size` times; the other half by symmetry."""
        t = middles(size)
        return {"interior": torch.cartesian_prod(middles(max(size // 2, 1)), t)}

    def drawn(self, size: int, generator: torch.Generator) -> Points:
        """Return points, half of them near the shock at x = 0."""
        x = spread(size, 2, generator)
        near = torch.arange(size) % 2 == 0
        # x = e^{−6 s} for s uniform: as many points in each decade of the distance.
        x[:, 0] = torch.where(near, torch.exp(-6 * x[:, 0]), x[:, 0])
        return {"interior": x}

    def residuals(self, net: Module, points: Points) -> dict[str, Tensor]:
        """Return u_t + u u_x − ν u_xx."""
        x = points["interior"].requires_grad_()
        u = self.field(net, x)
        slope = derivative(u, x)
        return {"interior": slope[:, 1] + u * slope[:, 0] - self.viscosity * second(slope, x, 0)}

    def truth(self, x: Tensor) -> Tensor:
        """Return the quotient of two integrals over e^{−cos(πy)/(2πν)} and the heat kernel."""
        nodes, weights = np.polynomial.hermite.hermgauss(200)
        place, time = x[:, 0].numpy()[:, None], x[:, 1].numpy()[:, None]
        y = place - np.sqrt(4 * self.viscosity * time) * nodes
        exponent = -np.cos(math.pi * y) / (2 * math.pi * self.viscosity)
        density = weights * np.exp(exponent - exponent.max(1, keepdims=True))
        found = -(density * np.sin(math.pi * y)).sum(1) / density.sum(1)
        return torch.as_tensor(found)

    def judged(self) -> Tensor:
        """Return a grid of 201 × 41, denser than most fits."""
        place = torch.linspace(-1, 1, 201, dtype=torch.float64)
        return torch.cartesian_prod(place, torch.linspace(0, 1, 41, dtype=torch.float64))
