"""One natural-gradient problem, checked and evaluated; the input of every route."""

import math
from dataclasses import dataclass
from typing import Generic

import torch
from torch import Tensor

from natgrad.likelihoods import Likelihood, Whitened
from natgrad.parametrizations.base import P, Parametrization

Shares = tuple[float, ...] | None
"""One weight per layer, summing to one; None for the minimum norm."""


@dataclass(frozen=True)
class Problem(Generic[P]):
    """F v = −∇L, or (F + λ) v = −∇L, at some parameters and batch.

    Attributes:
        likelihood: The loss.
        parametrization: The model.
        params: The parameters.
        x: Inputs of the batch.
        white: Root of the Fisher and targets at the batch's outputs.
        shares: The weights that select the solution.
        damping: λ, added to the Fisher as the loss is reduced.
        output_shape: Shape of the batch's outputs.
    """

    likelihood: Likelihood
    parametrization: Parametrization[P]
    params: P
    x: Tensor
    white: Whitened
    shares: Shares
    damping: float
    output_shape: torch.Size

    @property
    def outputs(self) -> int:
        """Return the number of outputs per sample."""
        return math.prod(self.output_shape[1:])

    @property
    def sum_damping(self) -> float:
        """Return λ on the scale where every sample's Fisher has factor one."""
        return self.damping / self.likelihood.scale(len(self.x))

    @property
    def mean_damping(self) -> float:
        """Return λ on the scale where the Fisher is an average."""
        return self.sum_damping / len(self.x)

    def pull(self, z: Tensor) -> P:
        """Return Jᵀ Cᵀ z for one number per row, flattened."""
        u = self.white.transpose(z.reshape(self.white.target.shape))
        return self.parametrization.vjp(self.params, self.x, u.reshape(self.output_shape))
