"""Poisson's equation on a cube, u = Π sin πxᵢ."""

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

__all__ = ["Poisson", "PoissonInside"]


class Poisson(Equation):
    """−Δu = f on [0, 1]ᵈ with u = 0 on the faces; u = Π sin πxᵢ."""

    def __init__(self, dimension: int = 2, boundary: float = 4.0) -> None:
        self.features = dimension
        self.weights = {"boundary": boundary}

    def fixed(self, size: int) -> Points:
        """Return a grid inside and on the faces; in more than two dimensions, drawn points."""
        if self.features > 2:
            return self.drawn(size * size, torch.Generator().manual_seed(size))
        t = middles(size)
        low, high = torch.zeros_like(t), torch.ones_like(t)
        faces = [torch.stack(pair, 1) for pair in ((t, low), (t, high), (low, t), (high, t))]
        return {"interior": torch.cartesian_prod(t, t), "boundary": torch.cat(faces)}

    def drawn(self, size: int, generator: torch.Generator) -> Points:
        """Return points inside, and a sixth as many on the faces."""
        d = self.features
        faces = uniform(max(size // 6, 2 * d), d, generator)
        which = torch.arange(len(faces))
        faces[which, which % d] = (which // d % 2).double()
        return {"interior": uniform(size, d, generator), "boundary": faces}

    def residuals(self, net: Module, points: Points) -> dict[str, Tensor]:
        """Return Δu + f inside and u on the faces."""
        x = points["interior"].requires_grad_()
        d = self.features
        slope = derivative(self.field(net, x), x)
        laplacian = torch.stack([second(slope, x, i) for i in range(d)]).sum(0)
        source = d * math.pi**2 * self.truth(x.detach())
        return {
            "interior": laplacian + source,
            "boundary": self.field(net, points["boundary"]),
        }

    def truth(self, x: Tensor) -> Tensor:
        """Return Π sin πxᵢ."""
        return torch.sin(math.pi * x).prod(1)

    def judged(self) -> Tensor:
        """Return 4000 drawn points."""
        return uniform(4000, self.features, torch.Generator().manual_seed(99))


class PoissonInside(Poisson):
    """The same with two properties by construction: u = N(z) Π zᵢ with zᵢ = 4xᵢ(1 − xᵢ).

    u = 0 on the faces: in many dimensions few points lie near a face and most faces have none.
    And u is symmetric under xᵢ → 1 − xᵢ, as the cube and f are, and therefore the solution.
    """

    def field(self, net: Module, x: Tensor) -> Tensor:
        """Return the ansatz."""
        z = 4 * x * (1 - x)
        inside: Tensor = net(z)[:, 0]
        return inside * z.prod(1)

    def residuals(self, net: Module, points: Points) -> dict[str, Tensor]:
        """Return Δu + f inside."""
        return {"interior": super().residuals(net, points)["interior"]}
