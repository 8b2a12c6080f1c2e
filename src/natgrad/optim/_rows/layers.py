"""Layers whose products are recorded: linear ones, and convolutions as products of patches."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.nn import Conv1d, Conv2d, Linear, Module
from torch.nn.functional import unfold

from natgrad.optim._rows.tape import Tape, multiply

__all__ = ["recorded", "recorded_layers"]


def _linear(layer: Linear, x: Tensor, tape: Tape, key: int) -> Tensor:
    return multiply(x, layer.weight, layer.bias, tape, key)


def _conv2d(layer: Conv2d, x: Tensor, tape: Tape, key: int) -> Tensor:
    """Return the convolution as a product with patches, `(n, position, patch)`."""
    padding = layer.padding
    assert not isinstance(padding, str)
    patches = unfold(x, layer.kernel_size, layer.dilation, padding, layer.stride).mT
    out = multiply(patches, layer.weight.flatten(1), layer.bias, tape, key)
    kernel, stride = layer.kernel_size, layer.stride
    height, width = (
        (x.shape[2 + i] + 2 * padding[i] - layer.dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in (0, 1)
    )
    return out.mT.reshape(x.shape[0], -1, height, width)


def _conv1d(layer: Conv1d, x: Tensor, tape: Tape, key: int) -> Tensor:
    padding = layer.padding
    assert not isinstance(padding, str)
    patches = unfold(
        x[:, :, None],
        (1, layer.kernel_size[0]),
        (1, layer.dilation[0]),
        (0, padding[0]),
        (1, layer.stride[0]),
    ).mT
    return multiply(patches, layer.weight.flatten(1), layer.bias, tape, key).mT


_PRODUCTS: dict[type[Module], Callable[..., Tensor]] = {
    Linear: _linear,
    Conv1d: _conv1d,
    Conv2d: _conv2d,
}


def recorded_layers(model: Module) -> dict[str, Module]:
    """Return the layers of a model whose products can be recorded, by name.

    Subclasses, parametrized layers, convolutions with groups, reflected or named padding are left
    to the slower routes.
    """
    found = {}
    for name, layer in model.named_modules():
        if type(layer) not in _PRODUCTS or not _is_plain(layer):
            continue
        if any(p.requires_grad for p in layer.parameters(recurse=False)):
            found[name] = layer
    return found


def _is_plain(layer: Module) -> bool:
    if isinstance(layer, Conv1d | Conv2d):
        plain = layer.groups == 1 and layer.padding_mode == "zeros"
        return plain and not isinstance(layer.padding, str)
    return True


@contextmanager
def recorded(layers: Mapping[str, Module], tape: Tape) -> Iterator[None]:
    """Let layers write their products on a tape inside a `with` block."""

    def forward(layer: Module, key: int) -> Callable[[Tensor], Tensor]:
        product, plain = _PRODUCTS[type(layer)], layer.forward
        least = next(p.ndim for name, p in layer.named_parameters() if name == "weight")

        def call(x: Tensor) -> Tensor:
            # Inside of torch.func's transforms and on unbatched inputs there are no rows to record.
            batched = x.ndim >= least
            if torch._C._are_functorch_transforms_active() or not batched:
                out: Tensor = plain(x)
                return out
            return product(layer, x, tape, key)

        return call

    own = [layer.__dict__.get("forward") for layer in layers.values()]
    try:
        for key, layer in enumerate(layers.values()):
            layer.__dict__["forward"] = forward(layer, key)
        yield
    finally:
        for layer, before in zip(layers.values(), own, strict=True):
            layer.__dict__.pop("forward", None)
            if before is not None:
                layer.__dict__["forward"] = before
