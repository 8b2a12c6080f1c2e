"""Embeddings: linear layers on one-hot rows, with a diagonal input factor."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge
from torch.nn import Module

from natgrad.optim._curvature.factor import Gram, factor_shape
from natgrad.optim._layers.linear import Layer, Pass, wide


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

    def norm(self, d: Tensor | None = None) -> float:
        """Return the norm of a direction whose length is learned: one per number of a moving row.

        A batch reads few rows of a large table. The number of moving rows is (Σ r)²/Σ r², where r
        are their norms: all rows if these are equal, one if only one moves.
        """
        n_out, n_in = self.shape
        moving = float(n_in)
        if d is not None:
            rows = torch.linalg.vector_norm(d, dim=0)
            moving = float(rows.sum()) ** 2 / max(float(rows.square().sum()), 1e-300)
        return math.sqrt(n_out * max(1.0, moving))

    def start(self) -> float:
        """Return one: tables begin with small entries, and a step may replace a row."""
        return 1.0

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


@dataclass(frozen=True)
class Bags:
    """The entries that bags look up.

    Attributes:
        tokens: Entries, `(t,)`.
        bag: The bag of each.
        weight: The weight of each in the sum of its bag.
    """

    tokens: Tensor
    bag: Tensor
    weight: Tensor

    def __len__(self) -> int:
        """Return 0: bags differ in length."""
        return 0


class EmbeddingBagLayer(EmbeddingLayer):
    """`torch.nn.EmbeddingBag` with sums or averages: one row per entry of each bag."""

    @classmethod
    def unsuitable(cls, module: Module) -> str | None:
        """Return why the table has no block, or None if it has one."""
        if module.mode == "max":
            return "an EmbeddingBag with mode='max'"
        return EmbeddingLayer.unsuitable(module)

    def passes(
        self, inputs: Any, named: Mapping[str, Any], output: Any, layers: Mapping[str, Layer]
    ) -> Iterator[Pass]:
        """Yield the bags that were looked up."""
        if output.requires_grad:
            given = dict(zip(("input", "offsets", "per_sample_weights"), inputs, strict=False))
            bags: Any = self._bags(**(given | dict(named)))
            yield self.name, bags, get_gradient_edge(output), False

    def _bags(
        self,
        input: Tensor,  # torch's name
        offsets: Tensor | None = None,
        per_sample_weights: Tensor | None = None,
    ) -> Bags:
        table: Any = self.module
        if input.ndim == 2:
            bag = torch.arange(len(input), device=input.device)[:, None].expand(input.shape)
        else:
            assert offsets is not None
            starts = offsets[:-1] if table.include_last_offset else offsets
            places = torch.arange(len(input), device=input.device)
            bag = torch.searchsorted(starts, places, right=True) - 1
        tokens, bag = input.reshape(-1), bag.reshape(-1)
        kept = torch.ones_like(tokens, dtype=torch.bool)
        if table.padding_idx is not None:
            kept = tokens != table.padding_idx
        weight = torch.ones_like(tokens, dtype=wide(self.weight).dtype)
        if per_sample_weights is not None:
            weight = wide(per_sample_weights.detach()).reshape(-1)
        tokens, bag, weight = tokens[kept], bag[kept], weight[kept]
        if table.mode == "mean":
            weight = weight / torch.bincount(bag)[bag]
        return Bags(tokens, bag, weight)

    def input_rows(self, x: Any) -> Tensor:
        """Return the entries, one row each."""
        return EmbeddingLayer.input_rows(self, x.tokens)

    def sum_inputs(self, x: Any, n: int) -> tuple[Gram, int]:
        """Return how often each entry was looked up."""
        return EmbeddingLayer.sum_inputs(self, x.tokens, n)

    def sum_errors(self, e: Tensor, x: Any, n: int) -> Gram:
        """Return Σ e eᵀ over entries of bags."""
        return EmbeddingLayer.sum_errors(self, self._spread(e, x), x.tokens, n)

    def sum_squares(self, e: Tensor, x: Any, n: int) -> Tensor:
        """Return Σ e² over the bags that looked up each entry."""
        return EmbeddingLayer.sum_squares(self, self._spread(e, x), x.tokens, n)

    def _spread(self, e: Tensor, x: Bags) -> Tensor:
        """Return the errors of bags for each of their entries."""
        return wide(self.error_rows(e))[x.bag] * x.weight[:, None]
