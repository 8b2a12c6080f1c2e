"""A direction in the space of parameters, block by block."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Part:
    """One block of a direction.

    Attributes:
        params: The block's parameters.
        tensors: d, in the same order and shapes; a step is θ ← θ − αd.
        slope: gᵀd with g the gradient of the average loss.
    """

    params: list[Tensor]
    tensors: list[Tensor]
    slope: float

    def move(self, length: float) -> None:
        """Step θ ← θ − length · d."""
        torch._foreach_add_(self.params, self.tensors, alpha=-length)

    def square(self) -> float:
        """Return ‖d‖²."""
        return math.fsum(float(norm) ** 2 for norm in torch._foreach_norm(self.tensors))


class Direction:
    """A direction with one part for each block; parameters without factors count as one block.

    Args:
        parts: The parts.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self.squares = [part.square() for part in parts]
        self.params = [p for part in parts for p in part.params]

    @property
    def depth(self) -> int:
        """Return the number of blocks L, at least 1."""
        return max(1, len(self.parts))

    @property
    def slope(self) -> float:
        """Return gᵀd."""
        return math.fsum(part.slope for part in self.parts)

    @property
    def square(self) -> float:
        """Return ‖d‖²."""
        return math.fsum(self.squares)

    def move(self, length: float) -> None:
        """Step θ ← θ − length · d."""
        for part in self.parts:
            part.move(length)

    def rescale(self, shares: Sequence[float]) -> None:
        """Multiply every part by its share."""
        for i, (part, share) in enumerate(zip(self.parts, shares, strict=True)):
            torch._foreach_mul_(part.tensors, share)
            self.parts[i] = Part(part.params, part.tensors, share * part.slope)
            self.squares[i] *= share**2
