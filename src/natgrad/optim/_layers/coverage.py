"""Which parameters of a model have blocks of the Fisher, and why the others have none."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from torch.nn import (
    GRU,
    LSTM,
    RNN,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Embedding,
    EmbeddingBag,
    GroupNorm,
    GRUCell,
    LayerNorm,
    Linear,
    LSTMCell,
    Module,
    MultiheadAttention,
    Parameter,
    PReLU,
    RMSNorm,
    RNNCell,
)

from natgrad._warn import warn_user
from natgrad.errors import UnsupportedError
from natgrad.optim._layers.attention import AttentionLayer
from natgrad.optim._layers.convolution import ConvLayer
from natgrad.optim._layers.embedding import EmbeddingBagLayer, EmbeddingLayer
from natgrad.optim._layers.linear import Conv1D, Layer, LinearLayer, Sharing, TurnedLayer
from natgrad.optim._layers.norm import (
    ChannelNormLayer,
    GroupNormLayer,
    LayerNormLayer,
    PReLULayer,
    RMSNormLayer,
)
from natgrad.optim._layers.normed import (
    NormedConv,
    NormedLayer,
    NormedLinear,
    originals,
    parametrization,
)
from natgrad.optim._layers.recurrent import RecurrentLayer
from natgrad.optim._layers.transposed import TransposedConvLayer


class UncoveredWarning(UserWarning):
    """Some parameters have no block of the Fisher, and take Adam's or plain gradient steps."""


KINDS: dict[type[Module], type[Layer]] = {
    Linear: LinearLayer,
    Conv1d: ConvLayer,
    Conv2d: ConvLayer,
    Conv3d: ConvLayer,
    ConvTranspose1d: TransposedConvLayer,
    ConvTranspose2d: TransposedConvLayer,
    ConvTranspose3d: TransposedConvLayer,
    Embedding: EmbeddingLayer,
    EmbeddingBag: EmbeddingBagLayer,
    LayerNorm: LayerNormLayer,
    RMSNorm: RMSNormLayer,
    GroupNorm: GroupNormLayer,
    BatchNorm1d: ChannelNormLayer,
    BatchNorm2d: ChannelNormLayer,
    BatchNorm3d: ChannelNormLayer,
    MultiheadAttention: AttentionLayer,
    LSTM: RecurrentLayer,
    GRU: RecurrentLayer,
    RNN: RecurrentLayer,
    LSTMCell: RecurrentLayer,
    GRUCell: RecurrentLayer,
    RNNCell: RecurrentLayer,
    PReLU: PReLULayer,
    Conv1D: TurnedLayer,
}
"""The layer class of every supported kind of module."""


@dataclass
class Coverage:
    """How a model's trainable parameters are divided.

    Attributes:
        layers: Layers with blocks, by module name.
        others: Parameters without a block, by name.
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
        >>> from torch.nn import Bilinear, Sequential
        >>> found = cover(Sequential(Linear(2, 3), Bilinear(3, 3, 1, bias=False)))
        >>> list(found.layers), list(found.others)
        (['0'], ['1.weight'])
    """
    owners = _owners(model)
    layers: dict[str, Layer] = {}
    reasons: dict[int, str] = {}
    for name, module in model.named_modules():
        own = [p for p in module._parameters.values() if p is not None and p.requires_grad]
        if (normed := _normed(module)) is not None:
            layers[name] = normed(name, module)
            continue
        if own and all(owners.get(id(p), module) is not module for p in own):
            continue  # another module with the same parameters has their block
        reason = _why_not(module, own, owners)
        if own and reason is None:
            found = KINDS[_kind(module)].all_of(name, module)
            layers |= {layer.name: layer for layer in found}
        reasons |= {id(p): reason for p in own if reason is not None}
    for layer in layers.values():
        layer.sharing, layer.largest = sharing, largest
        layer.also = _twins(model, layer, owners)
        layer.elsewhere = id(layer.weight) in owners and _elsewhere(model, layer)
    covered = {id(p) for p in chain.from_iterable(layer.parameters for layer in layers.values())}
    others = {
        name: p for name, p in model.named_parameters() if p.requires_grad and id(p) not in covered
    }
    why = {name: reasons.get(id(p), "beside the module's weight") for name, p in others.items()}
    return Coverage(layers, others, why)


def announce(reasons: dict[str, str], strict: bool) -> None:
    """Warn once about parameters without a block, or refuse them.

    Raises:
        UnsupportedError: If `strict` and there are any.
    """
    if not reasons:
        return
    listed = "; ".join(f"{name} ({reason})" for name, reason in reasons.items())
    message = f"no Kronecker factors for {listed}."
    if strict:
        raise UnsupportedError(
            f"{message} Use strict=False to give these Adam's or plain gradient steps, or freeze "
            "them."
        )
    warn_user(
        f"{message} They take Adam's steps where lengths are learned, else plain gradient steps.",
        UncoveredWarning,
    )


def _kind(module: Module) -> type[Module]:
    """Return the supported class whose forward the module runs, or Module."""
    for kind in KINDS:
        if isinstance(module, kind) and type(module).forward is kind.forward:
            return kind
    named = type(module).__module__, type(module).__name__
    return Conv1D if named == ("transformers.pytorch_utils", "Conv1D") else Module


def _normed(module: Module) -> type[NormedLayer] | None:
    """Return the class of a layer with weight norm or spectral norm that has a block."""
    if parametrization(module) is None:
        return None
    kind = KINDS.get(_kind(module))
    if any(not p.requires_grad for p in originals(module).values()):
        return None
    if kind is LinearLayer:
        return NormedLinear
    return NormedConv if kind is ConvLayer and module.groups == 1 else None


def _owners(model: Module) -> dict[int, Module | None]:
    """Return which module has the block of each parameter that several modules share.

    It is a linear layer if there is one, for example the head of a language model that is tied to
    the embedding. It is None if modules of other kinds share a parameter.
    """
    uses: dict[int, list[Module]] = {}
    for module in model.modules():
        for p in module._parameters.values():
            if p is not None:
                uses.setdefault(id(p), []).append(module)
    found: dict[int, Module | None] = {}
    for key, modules in uses.items():
        if len(modules) > 1:
            heads = [m for m in modules if _kind(m) is Linear and id(m.weight) == key]
            biases = [m for m in modules if _kind(m) is Linear and id(m.bias) == key]
            found[key] = next(iter(heads or biases), None)
    return found


def _twins(model: Module, layer: Layer, owners: Mapping[int, Module | None]) -> list[Module]:
    """Return the other modules of the same kind with exactly the parameters of a layer."""
    if owners.get(id(layer.weight)) is not layer.module:
        return []
    kind, own = _kind(layer.module), list(layer.module._parameters.values())
    return [
        m
        for m in model.modules()
        if m is not layer.module
        and _kind(m) is kind
        and all(a is b for a, b in zip(m._parameters.values(), own, strict=True))
    ]


def _elsewhere(model: Module, layer: Layer) -> bool:
    """Return whether modules other than a layer's own use its weight."""
    own = [layer.module, *layer.also]
    others = [m for m in model.modules() if all(m is not mine for mine in own)]
    return any(p is layer.weight for m in others for p in m._parameters.values())


def _why_not(
    module: Module, own: list[Parameter], owners: Mapping[int, Module | None]
) -> str | None:
    """Return why a module's parameters are not covered, or None if they are."""
    kind = KINDS.get(_kind(module))
    if kind is None:
        return f"{type(module).__name__} is not a supported layer"
    if reason := kind.unsuitable(module):
        return reason
    layers = kind.all_of("", module) if own else []
    if all(p is not layer.weight for layer in layers for p in own):
        return "its weight is frozen or computed from other tensors"
    if any(owners.get(id(p), module) is not module for p in own):
        return "tied to another module"
    return None
