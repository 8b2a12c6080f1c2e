"""Embeddings: linear layers on one-hot rows, with a diagonal input factor."""

import math

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.optim._curvature.factor import Gram, factor_shape
from natgrad.optim._layers.linear import Layer, wide


class EmbeddingLayer(Layer):
    """`torch.nn.Embedding`: a linear layer on one-hot rows, whose second moment is diagonal.

    W̄ is the transposed table, `(dimension, entries)`.
    """

    bias_name = None

    @classmethod
    def unsuitable(cls, module: Module) -> str | None:
        """Return why an embedding has no block, or None if it has one."""
        if module.sparse or module.scale_grad_by_freq or module.max_norm is not None:
            return "an embedding with sparse or scaled gradients, or a maximal norm"
        return None

    @property
    def shape(self) -> tuple[int, ...]:
        """Return `(dimension, entries)`."""
        return self.weight.shape[1], self.weight.shape[0]

    @property
    def factor_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of a diagonal and a matrix."""
        n_out, n_in = self.shape
        return (n_in,), factor_shape(n_out, self.largest)

    @property
    def norm(self) -> float:
        """Return the norm of a direction whose length is learned: one for each number."""
        return math.sqrt(self.weight.numel())

    def input_rows(self, x: Tensor) -> Tensor:
        """Return the indices, one row each."""
        return x.reshape(-1, 1)

    def error_rows(self, e: Tensor) -> Tensor:
        """Return errors with leading dimensions flattened."""
        return e.reshape(-1, e.shape[-1])

    def sum_inputs(self, x: Tensor, n: int) -> tuple[Gram, int]:
        """Return how often each entry was looked up, the diagonal of Σ x xᵀ."""
        counts = torch.bincount(x.reshape(-1), minlength=self.shape[1])
        return Gram(total=counts.to(wide(self.weight).dtype)), x.numel()

    def sum_squares(self, e: Tensor, x: Tensor, n: int) -> Tensor:
        """Return Σ e² over the rows that looked up each entry."""
        total = torch.zeros_like(wide(self.weight.detach()))
        total.index_add_(0, x.reshape(-1), wide(self.error_rows(e)).square())
        return total.mT

    def matrix(self, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Return the transposed table."""
        return weight.mT

    def split(self, matrix: Tensor) -> list[Tensor]:
        """Return the table."""
        return [matrix.mT]
