"""Convolutions: linear layers on patches."""

import math
from collections.abc import Sequence

from torch import Tensor
from torch.nn import Conv1d, Conv2d, Conv3d, Module
from torch.nn.functional import pad, unfold

from natgrad.optim._curvature.factor import Gram, with_ones
from natgrad.optim._layers.linear import Layer, wide


def patches(
    x: Tensor,
    kernel: Sequence[int],
    stride: Sequence[int],
    around: Sequence[int],
    dilation: Sequence[int],
    *,
    mode: str = "constant",
) -> Tensor:
    """Return the patches that a kernel sees, `(n, channels · kernel, positions)`.

    Args:
        x: A batch, `(n, channels, …)`.
        kernel: Sizes of the kernel.
        stride: Its steps.
        around: Padding in the order of `torch.nn.functional.pad`.
        dilation: Distances between entries of the kernel.
        mode: Padding mode.

    Example:
        >>> import torch
        >>> patches(torch.arange(4.0)[None, None], [2], [1], [0, 0], [2])
        tensor([[[0., 1.],
                 [2., 3.]]])
    """
    x = pad(x, list(around), mode=mode)
    if len(kernel) < 3:
        one = (1,) * (2 - len(kernel))
        flat = x[:, :, None] if len(kernel) == 1 else x
        return unfold(flat, (*one, *kernel), (*one, *dilation), stride=(*one, *stride))
    for i, (size, step, apart) in enumerate(zip(kernel, stride, dilation, strict=True)):
        x = x.unfold(2 + i, apart * (size - 1) + 1, step)[..., ::apart]
    space = len(kernel)
    places = [0, 1, *range(2 + space, 2 + 2 * space), *range(2, 2 + space)]
    return x.permute(places).flatten(1, 1 + space).flatten(2)


class ConvLayer(Layer):
    """`torch.nn.Conv1d`, `Conv2d` or `Conv3d`, any stride, padding and dilation."""

    def __init__(self, name: str, module: Module) -> None:
        super().__init__(name, module)
        self.groups: int = module.groups  # type: ignore[assignment]

    @classmethod
    def of(cls, name: str, module: Module) -> Layer:
        """Return the layer of a convolution, in groups or not.

        Example:
            >>> ConvLayer.of("c", Conv1d(4, 6, 3, groups=2)).shape
            (2, 3, 7)
        """
        kind = GroupedConvLayer if module.groups != 1 else ConvLayer
        return kind(name, module)

    def patches(self, x: Tensor) -> Tensor:
        """Return the patches that the kernel sees, `(n, channels · kernel, positions)`."""
        conv: Conv1d | Conv2d | Conv3d = self.module  # type: ignore[assignment]
        x = x[None] if x.ndim == len(conv.kernel_size) + 1 else x
        mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        around = conv._reversed_padding_repeated_twice
        return patches(x, conv.kernel_size, conv.stride, around, conv.dilation, mode=mode)

    def rows_each(self, x: Tensor) -> int:
        """Return the number of patches in one sample."""
        conv: Conv1d | Conv2d = self.module  # type: ignore[assignment]
        spatial = len(conv.kernel_size)
        if x.ndim == spatial + 1:
            return 0
        pads = conv._reversed_padding_repeated_twice[::-1]
        axes = zip(
            x.shape[2:],
            pads[::2],
            pads[1::2],
            conv.kernel_size,
            conv.dilation,
            conv.stride,
            strict=True,
        )
        return math.prod(
            (size + before + after - dilation * (kernel - 1) - 1) // stride + 1
            for size, before, after, kernel, dilation, stride in axes
        )

    def input_rows(self, x: Tensor) -> Tensor:
        """Return one row per patch."""
        return self.patches(x).mT.reshape(-1, self.fan_in)

    def error_rows(self, e: Tensor) -> Tensor:
        """Return the errors of every position."""
        return self._batched(e).flatten(2).mT.reshape(-1, len(self.weight))

    def _batched(self, e: Tensor) -> Tensor:
        return e[None] if e.ndim == self.weight.ndim - 1 else e


class GroupedConvLayer(ConvLayer):
    """A convolution in groups: a block for each, held as stacks of matrices."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Return `(groups, n_out, n_in)`, sizes of one group."""
        n_in = self.fan_in + (self.bias is not None)
        return self.groups, len(self.weight) // self.groups, n_in

    def _stacked(self, rows: Tensor, n: int, *, mean: bool) -> Tensor:
        """Return `(n, groups · k, positions)` as `(groups, r, k)`."""
        rows = wide(rows)
        if self.sharing == "reduce" and len(rows) == n:
            rows = rows.mean(2, keepdim=True) if mean else rows.sum(2, keepdim=True)
        each = rows.reshape(len(rows), self.groups, -1, rows.shape[2])
        return each.permute(1, 0, 3, 2).flatten(1, 2)

    def sum_inputs(self, x: Tensor, n: int) -> tuple[Gram, int]:
        """Return Σ x̄ x̄ᵀ of every group, and how many rows each has."""
        rows = self._stacked(self.patches(x), n, mean=True)
        rows = with_ones(rows) if self.bias is not None else rows
        return Gram(total=rows.mT @ rows), rows.shape[1]

    def sum_errors(self, e: Tensor, x: Tensor, n: int) -> Gram:
        """Return Σ e eᵀ of every group."""
        rows = self._stacked(self._batched(e).flatten(2), n, mean=False)
        return Gram(total=rows.mT @ rows)

    def sum_squares(self, e: Tensor, x: Tensor, n: int) -> Tensor:
        """Return Σ e² x̄² over rows of every group."""
        inputs = self._stacked(self.patches(x), 0, mean=True).square()
        inputs = with_ones(inputs) if self.bias is not None else inputs
        errors = self._stacked(self._batched(e).flatten(2), 0, mean=False).square()
        return errors.mT @ inputs
