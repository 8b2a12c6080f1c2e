"""Layers whose weight is computed by weight norm or spectral norm.

The block is that of the effective weight W, which the layer's inputs and errors give as always. The
chain rule leads from the gradients of the parameters to that of W, and back from a direction of W.

Weight norm, W = g v/‖v‖ for each output, has an exact chain: every change of W is one of g and v,
and the shortest one is taken. Spectral norm, W = V/σ(V), loses the scale of V; the change of σ
along a step is neglected, so the block is that of V/σ with σ fixed.
"""

from typing import Any

import torch
from torch import Tensor, norm_except_dim
from torch.nn import Module, Parameter
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import is_parametrized

from natgrad.optim._layers.convolution import ConvLayer
from natgrad.optim._layers.linear import Layer, LinearLayer


class NormedLayer(Layer):
    """A layer with one parametrization of its weight.

    Args:
        name: The module's name in the model.
        module: The module.
    """

    rank_one = False

    def __init__(self, name: str, module: Module) -> None:
        super().__init__(name, module)
        self.rank_one = False
        self._kind: Any = parametrization(module)
        self._originals = originals(module)
        prefix = f"{name}." if name else ""
        own = {f"{prefix}parametrizations.weight.{k}": p for k, p in self._originals.items()}
        bias = {} if self.bias is None else {f"{prefix}bias": self.bias}
        self.named = own | bias
        self.parameters = list(self.named.values())

    def own_weight(self, module: Module) -> Parameter:
        """Return the parameter in the shape of the weight."""
        return list(originals(module).values())[-1]

    def gradient(self, out: Tensor | None = None) -> Tensor | None:
        """Return the gradient in the effective weight, as a matrix."""
        if self.weight.grad is None:
            return None
        return self.matrix(self._pulled(), None if self.bias is None else self.bias.grad, out)

    def split(self, matrix: Tensor) -> list[Tensor]:
        """Return a matrix as tensors in the shapes of `parameters`."""
        weight, *bias = super().split(matrix)
        return [*self._pushed(weight), *bias]

    def _pulled(self) -> Tensor:
        v = self.weight.detach()
        assert self.weight.grad is not None
        if len(self._originals) == 1:
            return self._sigma() * self.weight.grad
        g = next(iter(self._originals.values()))
        norm = norm_except_dim(v, 2, self._kind.dim)
        along = 0.0 if g.grad is None else g.grad * v / norm
        return along + self.weight.grad * norm / _nonzero(g.detach())

    def _pushed(self, d: Tensor) -> list[Tensor]:
        v = self.weight.detach()
        if len(self._originals) == 1:
            return [self._sigma() * d]
        g = next(iter(self._originals.values())).detach()
        norm = norm_except_dim(v, 2, self._kind.dim)
        unit = v / norm
        axes = [i for i in range(v.ndim) if i != self._kind.dim]
        along = (unit * d).sum(axes, keepdim=True)
        return [along, (d - along * unit) * norm / _nonzero(g)]

    def _sigma(self) -> Tensor:
        """Return σ(V) as the last forward pass estimated it."""
        matrix = self._kind._reshape_weight_to_matrix(self.weight.detach())
        return torch.vdot(self._kind._u, torch.mv(matrix, self._kind._v))


class NormedLinear(NormedLayer, LinearLayer):
    """`torch.nn.Linear` with weight norm or spectral norm."""


class NormedConv(NormedLayer, ConvLayer):
    """A convolution with weight norm or spectral norm, without groups."""


def parametrization(module: Module) -> Module | None:
    """Return weight norm or spectral norm, if it alone computes a module's weight and no more."""
    if not is_parametrized(module, "weight"):
        return None
    kinds: Any = module.parametrizations
    only = kinds["weight"]
    named = type(only[0]).__name__ in ("_WeightNorm", "_SpectralNorm")
    ours = type(only[0]).__module__ == parametrizations.__name__
    return only[0] if len(kinds) == 1 and len(only) == 1 and named and ours else None


def originals(module: Module) -> dict[str, Parameter]:
    """Return the parameters from which a weight is computed: g and v, or V."""
    kinds: Any = module.parametrizations
    return dict(kinds["weight"].named_parameters(recurse=False))


def _nonzero(g: Tensor) -> Tensor:
    """Return magnitudes; infinite ones for zeros, along which nothing moves."""
    return torch.where(g == 0, torch.inf, g)
