"""The loss of one call of a torch criterion, on weighted rows of outputs."""

from collections.abc import Callable

import torch
from torch import Tensor

from natgrad.errors import UnsupportedError
from natgrad.likelihoods import Likelihood, Reduction, Root
from natgrad.likelihoods.base import flatten_outputs

Losses = Callable[[Tensor], Tensor]
"""A function of the first rows of the outputs that returns the loss of each."""


class Bound(Likelihood):
    """A torch loss with its labels, and Σₙ wₙ Fₙ for its Fisher.

    Labels and weights are those of one call; methods that get fewer rows use the first
    ones. Label smoothing, soft labels and constants do not change the Fisher in the outputs; class
    weights multiply it. The loss itself is torch's, with all of its options.

    Args:
        base: The likelihood that defines the Fisher.
        losses: The losses of the first rows.
        weights: w: a number, a column with one per row, or one per output if `base`
            treats outputs separately.
        reduction: How rows are reduced.

    Attributes:
        of_rows: `losses`.
    """

    def __init__(
        self, base: Likelihood, losses: Losses, weights: Tensor | float, *, reduction: Reduction
    ) -> None:
        super().__init__(reduction=reduction)
        self.base, self.of_rows, self.weights = base, losses, weights
        self.constant_fisher = base.constant_fisher and isinstance(weights, float)
        self.squares = base.squares and isinstance(weights, float)  # others may be negative

    def __repr__(self) -> str:
        """Return the likelihood that is weighted."""
        return f"Bound({self.base!r})"

    def prepare(self, output: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs as rows; the labels are known."""
        return flatten_outputs(output), y

    def _weights(self, f: Tensor) -> Tensor | float:
        return self.weights if isinstance(self.weights, float) else self.weights[: len(f)].to(f)

    def root(self, output: Tensor) -> Root:
        """Return the base's root, with weights."""
        root = self.base.root(output)
        weights = torch.as_tensor(self._weights(output), dtype=root.log_weight.dtype)
        return Root(root.contrast, root.log_weight + weights.log() / 2)

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        return self.base._sample(output, generator)

    def _sampled_errors(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        weights = self._weights(output)
        root = weights**0.5 if isinstance(weights, float) else weights.sqrt()
        return flatten_outputs(self.base._sampled_errors(output, generator)) * root

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        return self._weights(f) * self.base._fisher_product(f, u)

    def _mean_fisher(self, f: Tensor, weights: Tensor | None = None) -> Tensor:
        own = self._weights(f)
        if isinstance(own, float):
            return own * self.base._mean_fisher(f)
        return self.base._mean_fisher(f, own)

    def _fisher(self, f: Tensor) -> Tensor:
        weights = self._weights(f)
        scale = weights if isinstance(weights, float) else weights[:, :, None]
        return scale * self.base._fisher(f)

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return self.of_rows(f)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            leaf = f.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(self.of_rows(leaf).sum(), leaf)
        return gradient

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        raise UnsupportedError("a torch criterion has no natural velocity in closed form.")

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        return y
