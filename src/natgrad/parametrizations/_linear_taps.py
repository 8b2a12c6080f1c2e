"""Jacobian products of linear layers without their Jacobian rows.

The Jacobian row of output k of sample n in a weight matrix is eₙₖ xₙᵀ. Here xₙ is the layer's input
and eₙₖ the error propagated back from that output. So products of rows are products of two small
inner products, (xₙ·xₘ)(eₙₖ·eₘⱼ), and rows of n_in n_out numbers are never formed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import Linear, Module


@dataclass
class Tap:
    """The inputs of one linear layer, and the errors at its outputs for every output k.

    Attributes:
        prefix: What the names of its parameters begin with.
        weight: Whether the weight is among the parameters asked for.
        bias: Whether the bias is.
        inputs: One tensor for each call of the layer.
        outputs: The same, with a graph.
        errors: Shape `(n, k, n_out)`.
    """

    prefix: str
    weight: bool
    bias: bool
    inputs: list[Tensor]
    outputs: list[Tensor]
    errors: Tensor | None = None

    @property
    def names(self) -> list[str]:
        """Return the names of the parameters that were asked for."""
        kinds = {"weight": self.weight, "bias": self.bias}
        return [self.prefix + kind for kind, asked in kinds.items() if asked]

    def gram(self, other: "Tap") -> Tensor:
        """Return this layer's part of J Jᵀ, shape `(n, k, m, k)`."""
        own, others = self._known, other._known
        n, k, _ = own.shape
        m = len(others)
        errors = own.flatten(0, 1) @ others.flatten(0, 1).mT
        inputs = torch.full((n, m), float(self.bias), dtype=errors.dtype, device=errors.device)
        if self.weight:
            inputs += self.inputs[0] @ other.inputs[0].mT
        return errors.reshape(n, k, m, k) * inputs[:, None, :, None]

    def push(self, v: dict[str, Tensor]) -> Tensor:
        """Return this layer's part of J v, shape `(n, k)`."""
        moved = self._known.new_zeros(())
        if self.weight:
            moved = moved + self.inputs[0] @ v[self.prefix + "weight"].mT
        if self.bias:
            moved = moved + v[self.prefix + "bias"]
        return torch.einsum("nko,no->nk", self._known, moved.expand(len(self._known), -1))

    def pull(self, u: Tensor) -> dict[str, Tensor]:
        """Return this layer's part of Jᵀ u by name, u of shape `(n, k)`."""
        errors = torch.einsum("nko,nk->no", self._known, u)
        parts = {}
        if self.weight:
            parts[self.prefix + "weight"] = errors.mT @ self.inputs[0]
        if self.bias:
            parts[self.prefix + "bias"] = errors.sum(0)
        return parts

    def rows(self) -> dict[str, Tensor]:
        """Return Jacobian rows by name, shape `(n, k, p)`."""
        parts = {}
        if self.weight:
            outer = torch.einsum("nko,ni->nkoi", self._known, self.inputs[0])
            parts[self.prefix + "weight"] = outer.flatten(2)
        if self.bias:
            parts[self.prefix + "bias"] = self._known
        return parts

    @property
    def _known(self) -> Tensor:
        assert self.errors is not None
        return self.errors


def tap_linear_layers(
    module: Module, params: dict[str, Tensor], names: list[str], x: Tensor
) -> dict[str, Tap]:
    """Return taps of the linear layers that own some of the named parameters alone.

    The caller treats the following by rows, and they are left out: layers that are called more than
    once, layers whose inputs have more than one axis besides the samples, parameters that several
    modules share, and layers where Jᵀ times a fixed vector is not what autograd returns.
    """
    taps = _taps(module, names)
    own = [name for tap in taps.values() for name in tap.names]
    if not own:
        return {}
    with torch.enable_grad():
        leaves = [params[name].detach().requires_grad_() for name in own]
        given = {**params, **dict(zip(own, leaves, strict=True))}
        try:
            with _listening(module, taps):
                outputs = functional_call(module, given, (x,)).reshape(len(x), -1)
        except RuntimeError:  # autograd cannot follow this forward pass; the rows raise the error
            return {}
        used = {
            name: tap
            for name, tap in taps.items()
            if len(tap.inputs) == 1 and tap.inputs[0].ndim == 2 and len(tap.inputs[0]) == len(x)
        }
        if not used or not outputs.requires_grad:
            return {}
        sources = [tap.outputs[0] for tap in used.values()]
        errors = [
            _gradients(column, sources, torch.ones_like(column)) for column in outputs.unbind(1)
        ]
        size = outputs.numel()
        probe = torch.cos(torch.arange(size, dtype=outputs.dtype, device=outputs.device))
        probe = probe.reshape(outputs.shape)
        pulled = dict(zip(own, _gradients(outputs, leaves, probe), strict=True))
    for tap, per_output in zip(used.values(), zip(*errors, strict=True), strict=True):
        tap.errors = torch.stack(per_output, dim=1)
    return {name: tap for name, tap in used.items() if _agrees(tap.pull(probe), pulled)}


def covers(module: Module, names: list[str]) -> bool:
    """Return whether all named parameters belong to linear layers that own them alone."""
    found = (name for tap in _taps(module, names).values() for name in tap.names)
    return not set(names).difference(found)


def _gradients(outputs: Tensor, sources: list[Tensor], weights: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(outputs, sources, weights, retain_graph=True, materialize_grads=True)


def _agrees(ours: dict[str, Tensor], true: dict[str, Tensor]) -> bool:
    """Return whether two gradients of the same parameters agree."""
    for name, g in ours.items():
        size = g.abs().max() + true[name].abs().max()
        if not bool((g - true[name]).abs().max() <= 1e4 * torch.finfo(g.dtype).eps * size):
            return False
    return True


def _taps(module: Module, names: list[str]) -> dict[str, Tap]:
    owners: dict[int, int] = {}
    for _, p in module.named_parameters(remove_duplicate=False):
        owners[id(p)] = owners.get(id(p), 0) + 1
    taps = {}
    for name, layer in module.named_modules():
        if type(layer) is not Linear or any(owners[id(p)] > 1 for p in layer.parameters()):
            continue
        prefix = f"{name}." if name else ""
        weight, bias = (prefix + kind in names for kind in ("weight", "bias"))
        if weight or bias:
            taps[name] = Tap(prefix, weight, bias, [], [])
    return taps


@contextmanager
def _listening(module: Module, taps: dict[str, Tap]) -> Iterator[None]:
    def listen(tap: Tap):  # type: ignore[no-untyped-def]
        def hook(_: Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            out = output.clone()  # so that an in-place activation cannot change it
            if not out.requires_grad:
                out.requires_grad_()
            tap.inputs.append(inputs[0].detach())
            tap.outputs.append(out)
            return out.clone()

        return hook

    layers = dict(module.named_modules())
    handles = [layers[name].register_forward_hook(listen(tap)) for name, tap in taps.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
