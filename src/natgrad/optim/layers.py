"""The layers whose Fisher has Kronecker factors: their rows, gradients and updates.

A layer's parameters form one matrix W̄ of shape `(n_out, n_in)`, the bias its last column. Its
Fisher block is approximated by Λ ⊗ Λ̃, second moments of the rows that enter the layer (with a one
appended if there is a bias) and of the errors that come back to its outputs. A weight used at many
positions of one datum (sequences, convolutions) has one row per position.
"""

import warnings
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor
from torch.nn import Conv2d, Linear, Module, Parameter
from torch.nn.functional import pad, unfold

from natgrad.errors import UnsupportedError


class UncoveredWarning(UserWarning):
    """Some parameters have no Kronecker factors and take plain gradient steps."""


class Layer(ABC):
    """One module whose weight, and bias if it has a trainable one, are a single matrix.

    Args:
        name: The module's name in the model.
        module: The module.
    """

    def __init__(self, name: str, module: Module) -> None:
        self.name, self.module = name, module
        self.weight: Parameter = module.weight  # type: ignore[assignment]
        bias = getattr(module, "bias", None)
        self.bias: Parameter | None = bias if bias is not None and bias.requires_grad else None
        self.fan_in = self.weight[0].numel()

    @property
    def shape(self) -> tuple[int, int]:
        """Return `(n_out, n_in)` of W̄, the bias's column included."""
        return len(self.weight), self.fan_in + (self.bias is not None)

    @property
    def parameters(self) -> list[Parameter]:
        """Return the parameters that W̄ is made of."""
        return [self.weight] if self.bias is None else [self.weight, self.bias]

    @abstractmethod
    def input_rows(self, x: Tensor) -> Tensor:
        """Return what entered the layer, one row per position, shape `(r, fan_in)`."""

    @abstractmethod
    def error_rows(self, e: Tensor) -> Tensor:
        """Return what came back to the layer's output, one row per position, `(r, n_out)`."""

    def matrix(self, weight: Tensor, bias: Tensor | None, out: Tensor | None = None) -> Tensor:
        """Return a weight-shaped and a bias-shaped tensor as one matrix `(n_out, n_in)`."""
        flat = weight.reshape(len(weight), -1)
        if self.bias is None:
            return flat
        out = flat.new_empty(self.shape) if out is None else out
        out[:, :-1].copy_(flat)
        out[:, -1].copy_(bias if bias is not None else torch.zeros_like(out[:, -1]))
        return out

    def split(self, matrix: Tensor) -> list[Tensor]:
        """Return a matrix as tensors in the shapes of `parameters`."""
        if self.bias is None:
            return [matrix.reshape(self.weight.shape)]
        return [matrix[:, :-1].reshape(self.weight.shape), matrix[:, -1]]

    def gradient(self, out: Tensor | None = None) -> Tensor | None:
        """Return `.grad` as a matrix, or None if the last backward pass left none."""
        if self.weight.grad is None:
            return None
        return self.matrix(self.weight.grad, None if self.bias is None else self.bias.grad, out)


class LinearLayer(Layer):
    """`torch.nn.Linear`, inputs with any leading dimensions."""

    def input_rows(self, x: Tensor) -> Tensor:
        """Return inputs with leading dimensions flattened."""
        return x.reshape(-1, x.shape[-1])

    def error_rows(self, e: Tensor) -> Tensor:
        """Return errors with leading dimensions flattened."""
        return e.reshape(-1, e.shape[-1])


class Conv2dLayer(Layer):
    """`torch.nn.Conv2d` without groups: a linear layer on patches."""

    def input_rows(self, x: Tensor) -> Tensor:
        """Return the patches that the kernel sees."""
        conv: Conv2d = self.module  # type: ignore[assignment]
        x = x[None] if x.ndim == 3 else x
        mode = "constant" if conv.padding_mode == "zeros" else conv.padding_mode
        padded = pad(x, conv._reversed_padding_repeated_twice, mode=mode)
        patches = unfold(padded, conv.kernel_size, conv.dilation, stride=conv.stride)
        return patches.mT.reshape(-1, self.fan_in)

    def error_rows(self, e: Tensor) -> Tensor:
        """Return the errors of every pixel."""
        e = e[None] if e.ndim == 3 else e
        return e.flatten(2).mT.reshape(-1, e.shape[1])


@dataclass
class Coverage:
    """How a model's trainable parameters are divided.

    Attributes:
        layers: Layers with Kronecker factors, by module name.
        others: Parameters without, by name.
        reasons: Why, for each name in `others`.
    """

    layers: dict[str, Layer]
    others: dict[str, Parameter]
    reasons: dict[str, str]

    def drop(self, name: str, reason: str) -> dict[str, Parameter]:
        """Move a layer's parameters to the others, and return them by name."""
        layer = self.layers.pop(name)
        prefix = f"{name}." if name else ""
        kinds = ("weight", "bias")
        dropped = {prefix + kind: p for kind, p in zip(kinds, layer.parameters, strict=False)}
        self.others |= dropped
        self.reasons |= dict.fromkeys(dropped, reason)
        return dropped


def cover(model: Module) -> Coverage:
    """Return which parameters of a model have Kronecker factors, and why the others have none.

    Example:
        >>> found = cover(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.LayerNorm(3)))
        >>> list(found.layers), list(found.others)
        (['0'], ['1.weight', '1.bias'])
    """
    uses = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    layers: dict[str, Layer] = {}
    reasons: dict[int, str] = {}
    for name, module in model.named_modules():
        own = [p for p in module._parameters.values() if p is not None and p.requires_grad]
        reason = _why_not(module, own, uses)
        if own and reason is None:
            layers[name] = _KINDS[_kind(module)](name, module)
        reasons |= {id(p): reason for p in own if reason is not None}
    covered = {id(p) for p in chain.from_iterable(layer.parameters for layer in layers.values())}
    others = {
        name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in covered
    }
    return Coverage(layers, others, {name: reasons[id(p)] for name, p in others.items()})


def announce(reasons: dict[str, str], strict: bool) -> None:
    """Warn once of parameters without Kronecker factors, or refuse them.

    Raises:
        UnsupportedError: If `strict` and there are any.
    """
    if not reasons:
        return
    listed = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
    message = f"no Kronecker factors for {listed}."
    if strict:
        raise UnsupportedError(
            f"{message} Use strict=False to give these plain gradient steps, or freeze them."
        )
    warnings.warn(
        f"{message} They take plain gradient steps, each divided by the trace of its Fisher block.",
        UncoveredWarning,
        stacklevel=3,
    )


_KINDS: dict[type[Module], type[Layer]] = {Linear: LinearLayer, Conv2d: Conv2dLayer}


def _kind(module: Module) -> type[Module]:
    """Return the supported class whose forward the module runs, or Module."""
    for kind in _KINDS:
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return kind
    return Module


def _why_not(module: Module, own: list[Parameter], uses: Counter[int]) -> str | None:
    """Return why a module's parameters are not covered, or None if they are."""
    kind = _kind(module)
    if kind is Module:
        return f"{type(module).__name__} is not a supported layer"
    if module._parameters.get("weight") not in own:
        return "its weight is frozen or computed from other tensors"
    if any(uses[id(p)] > 1 for p in own):
        return "tied to another module"
    if isinstance(module, Conv2d) and module.groups > 1:
        return "grouped convolution"
    return None
