"""Normalization layers: scale and shift have an exact Fisher block, full or diagonal."""

import math
from abc import abstractmethod

import torch
from torch import Tensor
from torch.nn import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    GroupNorm,
    LayerNorm,
    Module,
    RMSNorm,
)
from torch.nn import functional as F

from natgrad.optim._curvature.factor import Gram
from natgrad.optim._layers.linear import Layer, wide

# A vector of parameters longer than this has a diagonal block instead of a full one.
LARGEST_FULL_BLOCK = 1024


class NormLayer(Layer):
    """Scale and shift of a normalization: the Fisher block of a vector, full or diagonal.

    The output is linear in both, so a sample's gradient is Σ e ⊙ x̂ and Σ e over positions, with
    the normalized input x̂. The block is the second moment of these; only the expectation is
    approximated. W̄ is one column.
    """

    one_sided = True

    def __init__(self, name: str, module: Module) -> None:
        super().__init__(name, module)
        self._numbers = sum(p.numel() for p in self.parameters)
        self.full = self._numbers <= LARGEST_FULL_BLOCK

    @property
    def shape(self) -> tuple[int, ...]:
        """Return `(n, 1)`, n numbers of scale and shift."""
        return self._numbers, 1

    @property
    def factor_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of a one and a matrix, or its diagonal."""
        n = self._numbers
        return (1,), (n, n) if self.full else (n,)

    def input_rows(self, x: Tensor) -> Tensor:
        """Return a one for each sample."""
        return torch.ones(len(x), 1, dtype=wide(x).dtype, device=x.device)

    def error_rows(self, e: Tensor) -> Tensor:
        """Return errors with leading dimensions flattened."""
        return e.reshape(len(e), -1)

    def sum_inputs(self, x: Tensor, n: int) -> tuple[Gram, int]:
        """Return n, the second moment of ones."""
        return Gram(total=torch.full((1,), float(n), dtype=wide(x).dtype, device=x.device)), n

    @abstractmethod
    def normalized(self, x: Tensor) -> Tensor:
        """Return the normalized input before scale and shift, as in training mode."""

    @abstractmethod
    def per_sample(self, t: Tensor, n: int) -> Tensor:
        """Return sums of an output-shaped tensor over the positions of each of n samples."""

    def gradients(self, e: Tensor, x: Tensor, n: int) -> Tensor:
        """Return each sample's gradient, `(n, numbers)`; each position's if samples are mixed."""
        e, unit = wide(e), wide(self.normalized(x))
        found = [self.per_sample(e * unit, n), self.per_sample(e, n)]
        return found[0] if self.bias is None else torch.cat(found, dim=1)

    def sum_errors(self, e: Tensor, x: Tensor, n: int) -> Gram:
        """Return the second moment of the samples' gradients, or its diagonal."""
        rows = self.gradients(e, x, n)
        if not self.full:
            return Gram(total=rows.square().sum(0))
        return Gram(total=rows.mT @ rows)

    def sum_squares(self, e: Tensor, x: Tensor, n: int) -> Tensor:
        """Return the diagonal of the second moment."""
        return self.gradients(e, x, n).square().sum(0)[:, None]

    def matrix(self, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Return scale and shift as one column."""
        flat = weight.reshape(-1, 1)
        if self.bias is None:
            return flat
        shift = torch.zeros_like(flat) if bias is None else bias.reshape(-1, 1)
        return torch.cat([flat, shift])

    def split(self, matrix: Tensor) -> list[Tensor]:
        """Return scale and shift."""
        sizes = [p.numel() for p in self.parameters]
        pieces = zip(torch.split(matrix[:, 0], sizes), self.parameters, strict=True)
        return [piece.reshape(p.shape) for piece, p in pieces]


class ChannelNormLayer(NormLayer):
    """`torch.nn.BatchNorm1d`, `BatchNorm2d` or `BatchNorm3d`, in training mode."""

    def normalized(self, x: Tensor) -> Tensor:
        """Return the input before scale and shift."""
        norm: BatchNorm1d | BatchNorm2d | BatchNorm3d = self.module  # type: ignore[assignment]
        return F.batch_norm(x, None, None, training=True, eps=norm.eps)

    def per_sample(self, t: Tensor, n: int) -> Tensor:
        """Return sums over positions of every channel, `(n, channels)`."""
        return t.flatten(2).sum(2) if t.ndim > 2 else t


class GroupNormLayer(ChannelNormLayer):
    """`torch.nn.GroupNorm`."""

    def normalized(self, x: Tensor) -> Tensor:
        """Return the input before scale and shift."""
        norm: GroupNorm = self.module  # type: ignore[assignment]
        return F.group_norm(x, norm.num_groups, None, None, norm.eps)


class LayerNormLayer(NormLayer):
    """`torch.nn.LayerNorm`."""

    def normalized(self, x: Tensor) -> Tensor:
        """Return the input before scale and shift."""
        norm: LayerNorm = self.module  # type: ignore[assignment]
        return F.layer_norm(x, norm.normalized_shape, None, None, norm.eps)

    def per_sample(self, t: Tensor, n: int) -> Tensor:
        """Return sums over positions, `(n, entries)`; every position if samples are mixed."""
        lead = n if len(t) == n else math.prod(t.shape[: t.ndim - self.weight.ndim])
        return t.reshape(lead, -1, self.weight.numel()).sum(1)


class PReLULayer(ChannelNormLayer):
    """The slopes of `torch.nn.PReLU`; the output is linear in them, too."""

    bias_name = None

    def normalized(self, x: Tensor) -> Tensor:
        """Return the factor of a slope: the negative part of the input."""
        return x.clamp(max=0)

    def per_sample(self, t: Tensor, n: int) -> Tensor:
        """Return sums over positions for every slope, `(n, slopes)`."""
        if self.weight.numel() == 1:
            return t.reshape(len(t), -1).sum(1, keepdim=True)
        return super().per_sample(t, n)


class RMSNormLayer(LayerNormLayer):
    """`torch.nn.RMSNorm`."""

    def normalized(self, x: Tensor) -> Tensor:
        """Return the input before scale."""
        norm: RMSNorm = self.module  # type: ignore[assignment]
        return F.rms_norm(x, norm.normalized_shape, None, norm.eps)
