"""Which parameters of a model have blocks of the Fisher, and why the others have none."""

import warnings
from collections import Counter
from dataclasses import dataclass
from itertools import chain

from torch.nn import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Embedding,
    GroupNorm,
    LayerNorm,
    Linear,
    Module,
    MultiheadAttention,
    Parameter,
    RMSNorm,
)

from natgrad.errors import UnsupportedError
from natgrad.optim._layers.attention import AttentionLayer
from natgrad.optim._layers.convolution import ConvLayer
from natgrad.optim._layers.embedding import EmbeddingLayer
from natgrad.optim._layers.linear import Layer, LinearLayer, Sharing
from natgrad.optim._layers.norm import (
    ChannelNormLayer,
    GroupNormLayer,
    LayerNormLayer,
    RMSNormLayer,
)


class UncoveredWarning(UserWarning):
    """Some parameters have no block of the Fisher and take plain gradient steps."""


KINDS: dict[type[Module], type[Layer]] = {
    Linear: LinearLayer,
    Conv1d: ConvLayer,
    Conv2d: ConvLayer,
    Embedding: EmbeddingLayer,
    LayerNorm: LayerNormLayer,
    RMSNorm: RMSNormLayer,
    GroupNorm: GroupNormLayer,
    BatchNorm1d: ChannelNormLayer,
    BatchNorm2d: ChannelNormLayer,
    BatchNorm3d: ChannelNormLayer,
    MultiheadAttention: AttentionLayer,
}
"""The layer class of every supported kind of module."""


@dataclass
class Coverage:
    """How a model's trainable parameters are divided.

    Attributes:
        layers: Layers with blocks, by module name.
        others: Parameters without, by name.
        reasons: Why, for each name in `others`.
    """

    layers: dict[str, Layer]
    others: dict[str, Parameter]
    reasons: dict[str, str]

    def drop(self, name: str, reason: str) -> dict[str, Parameter]:
        """Move a layer's parameters to the others, and return them by name."""
        dropped = self.layers.pop(name).named
        self.others |= dropped
        self.reasons |= dict.fromkeys(dropped, reason)
        return dropped


def cover(model: Module, sharing: Sharing = "expand", *, largest: int | None = None) -> Coverage:
    """Return which parameters of a model have blocks, and why the others have none.

    Example:
        >>> from torch.nn import PReLU, Sequential
        >>> found = cover(Sequential(Linear(2, 3), PReLU()))
        >>> list(found.layers), list(found.others)
        (['0'], ['1.weight'])
    """
    uses = Counter(id(p) for _, p in model.named_parameters(remove_duplicate=False))
    layers: dict[str, Layer] = {}
    reasons: dict[int, str] = {}
    for name, module in model.named_modules():
        own = [p for p in module._parameters.values() if p is not None and p.requires_grad]
        reason = _why_not(module, own, uses)
        if own and reason is None:
            layers[name] = KINDS[_kind(module)].of(name, module)
            layers[name].sharing, layers[name].largest = sharing, largest
        reasons |= {id(p): reason for p in own if reason is not None}
    covered = {id(p) for p in chain.from_iterable(layer.parameters for layer in layers.values())}
    others = {
        name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in covered
    }
    why = {name: reasons.get(id(p), "beside the module's weight") for name, p in others.items()}
    return Coverage(layers, others, why)


def announce(reasons: dict[str, str], strict: bool) -> None:
    """Warn once of parameters without a block, or refuse them.

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
        f"{message} They take Adam's steps where lengths are learned, else plain gradient steps.",
        UncoveredWarning,
        stacklevel=3,
    )


def _kind(module: Module) -> type[Module]:
    """Return the supported class whose forward the module runs, or Module."""
    for kind in KINDS:
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return kind
    return Module


def _why_not(module: Module, own: list[Parameter], uses: Counter[int]) -> str | None:
    """Return why a module's parameters are not covered, or None if they are."""
    kind = KINDS.get(_kind(module))
    if kind is None:
        return f"{type(module).__name__} is not a supported layer"
    if reason := kind.unsuitable(module):
        return reason
    if all(p is not module._parameters.get(kind.weight_name) for p in own):
        return "its weight is frozen or computed from other tensors"
    if any(uses[id(p)] > 1 for p in own):
        return "tied to another module"
    return None
