"""A square root of the Fisher, shared by the Fisher and the gradient."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import dense, describe
from natgrad.errors import ShapeError

__all__ = ["Root", "Whitened"]


@dataclass(frozen=True)
class Root:
    """A square root of the Fisher of each sample, with its scale stored separately as logarithms.

    The Fisher of sample n is Fₙ = Σᵣ e^{2 ℓₙᵣ} cₙᵣ cₙᵣᵀ. Logarithms, because any weight underflows
    on confidently classified data although the natural direction stays finite. ℓ and c are each
    accurate to rounding; the rounding error of a weight e^{2ℓ} is up to 2 |ℓ| times larger.

    Attributes:
        contrast: Rows cₙᵣ acting on one sample's outputs, shape `(n, r, k)` or `(1, r, k)`;
            None is the identity, r = k.
        log_weight: ℓ, shape `(n, r)`.

    Example:
        >>> from natgrad import Bernoulli
        >>> root = Bernoulli().root(torch.zeros(1, 1))  # the Fisher is ¼ = e^{2ℓ}
        >>> torch.exp(2 * root.log_weight)
        tensor([[0.2500]])
    """

    contrast: Tensor | None
    log_weight: Tensor

    def apply(self, outputs: Tensor) -> Tensor:
        """Return C u: contrasts of outputs, `(n, k, …)` to `(n, r, …)`."""
        if self.contrast is None:
            return outputs
        try:
            contrast = self.contrast.expand(len(outputs), -1, -1)
            return torch.einsum("nrk,nk...->nr...", contrast, outputs)
        except (RuntimeError, TypeError) as error:
            raise self._refusal(outputs, "outputs", 2) from error

    def transpose(self, rows: Tensor) -> Tensor:
        """Return Cᵀ z, `(n, r)` to `(n, k)`."""
        if self.contrast is None:
            return rows
        try:
            return torch.einsum("nrk,nr->nk", self.contrast.expand(len(rows), -1, -1), rows)
        except (RuntimeError, TypeError) as error:
            raise self._refusal(rows, "rows", 1) from error

    def _refusal(self, value: Any, name: str, side: int) -> ShapeError:
        """Return the error for an invalid value."""
        dense(value, name)
        n, wanted = len(self.log_weight), 0 if self.contrast is None else self.contrast.shape[side]
        kind = self.log_weight.dtype
        return ShapeError(
            f"{name} must be {kind} of shape ({n}, {wanted}), but is {describe(value)}."
        )


@dataclass(frozen=True)
class Whitened(Root):
    """A `Root`, and the targets that express the gradient in it.

    The loss gradient of sample n is −Σᵣ e^{2 ℓₙᵣ} cₙᵣ bₙᵣ, so the natural direction is the least
    squares solution of c·(J v) = b with weights e^{ℓ}, and F is never formed.

    Attributes:
        target: b, shape `(n, r)`: the natural velocity of each contrast.

    Example:
        >>> from natgrad import Bernoulli
        >>> white = Bernoulli().whitened(torch.zeros(1), torch.ones(1))
        >>> white.target, -torch.exp(2 * white.log_weight) * white.target  # velocity, gradient
        (tensor([[2.]]), tensor([[-0.5000]]))
    """

    target: Tensor
