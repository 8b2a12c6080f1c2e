"""Transposed convolutions: products of inputs and patches of errors."""

from typing import Any

from torch import Tensor
from torch.nn import Module

from natgrad.optim._layers.convolution import patches
from natgrad.optim._layers.linear import Layer, wide
from natgrad.optim._layers.norm import NormLayer


class TransposedConvLayer(Layer):
    """The kernel of `torch.nn.ConvTranspose1d`, `ConvTranspose2d` or `ConvTranspose3d`.

    Each position of the input adds its channels times the kernel to a patch of the output. So the
    gradient of the kernel is the sum over positions of the input times the patch of the errors:
    W̄ has one row per place of the patch and one column per channel of the input.
    """

    bias_name = None

    @classmethod
    def all_of(cls, name: str, module: Module) -> list[Layer]:
        """Return a layer for the kernel, and one for the bias, which every position shares."""
        found: list[Layer] = [cls(name, module)]
        if module.bias is not None and module.bias.requires_grad:
            found.append(BiasLayer(name, module))
        return found

    @classmethod
    def unsuitable(cls, module: Module) -> str | None:
        """Return why the module has no block, or None if it has one."""
        return None if module.groups == 1 else "a transposed convolution in groups"

    @property
    def shape(self) -> tuple[int, ...]:
        """Return `(channels out · kernel, channels in)`."""
        return self.fan_in, len(self.weight)

    def input_rows(self, x: Tensor) -> Tensor:
        """Return one row per position of the input."""
        return self._batched(x).flatten(2).mT.reshape(-1, len(self.weight))

    def error_rows(self, e: Tensor) -> Tensor:
        """Return the patch of errors that each position of the input reached."""
        conv: Any = self.module
        found = patches(
            self._batched(e),
            conv.kernel_size,
            conv.stride,
            [size for size in reversed(conv.padding) for _ in range(2)],
            conv.dilation,
        )
        return found.mT.reshape(-1, self.fan_in)

    def _batched(self, t: Tensor) -> Tensor:
        return t[None] if t.ndim == self.weight.ndim - 1 else t

    def matrix(self, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Return the kernel as a matrix."""
        return weight.flatten(1).mT

    def split(self, matrix: Tensor) -> list[Tensor]:
        """Return a matrix in the kernel's shape."""
        return [matrix.mT.reshape(self.weight.shape)]


class BiasLayer(NormLayer):
    """A bias that every position of a sample shares: the exact block of a vector."""

    weight_name = "bias"
    bias_name = None

    def __init__(self, name: str, module: Module) -> None:
        super().__init__(name, module)
        self.name = f"{name}.bias" if name else "bias"

    def normalized(self, x: Tensor) -> Tensor:
        """Raise: a bias is not multiplied with an input."""
        raise NotImplementedError

    def per_sample(self, t: Tensor, n: int) -> Tensor:
        """Return sums over positions of every channel, `(n, channels)`."""
        return t.flatten(2).sum(2)

    def gradients(self, e: Tensor, x: Tensor, n: int) -> Tensor:
        """Return each sample's errors, summed over positions."""
        return self.per_sample(wide(e), n)
