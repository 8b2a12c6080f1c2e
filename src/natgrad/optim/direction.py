"""A direction in the space of parameters."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor


class Direction:
    """A direction, and the parameters it moves: a step is θ ← θ − αd.

    Args:
        params: Parameters that have a gradient.
        tensors: d, in the same order and shapes.
        slope: gᵀd with g the gradient of the average loss.
        depth: Number of blocks L; parameters without factors count as one.
    """

    def __init__(
        self, params: Sequence[Tensor], tensors: Sequence[Tensor], slope: float, depth: int
    ) -> None:
        self.params, self.tensors = list(params), list(tensors)
        self.slope, self.depth = slope, depth
        self._square: float | None = None

    @property
    def square(self) -> float:
        """Return ‖d‖²."""
        if self._square is None:
            norms = torch._foreach_norm(self.tensors) if self.tensors else ()
            self._square = math.fsum(float(norm) ** 2 for norm in norms)
        return self._square

    def move(self, length: float) -> None:
        """Step θ ← θ − length · d."""
        if self.tensors:
            torch._foreach_add_(self.params, self.tensors, alpha=-length)
