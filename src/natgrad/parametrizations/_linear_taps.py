"""The kernel of linear layers without their Jacobian rows.

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
    """The inputs of one linear layer, and the errors at its outputs for every output k."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    weight: bool
    bias: bool
    errors: Tensor | None = None  # (n, k, n_out)

    def gram(self, other: "Tap") -> Tensor:
        """Return this layer's part of J Jᵀ, shape `(n, k, m, k)`."""
        assert self.errors is not None
        assert other.errors is not None
        n, k, _ = self.errors.shape
        m = len(other.errors)
        errors = self.errors.flatten(0, 1) @ other.errors.flatten(0, 1).mT
        inputs = torch.full((n, m), float(self.bias), dtype=errors.dtype, device=errors.device)
        if self.weight:
            inputs += self.inputs[0] @ other.inputs[0].mT
        return errors.reshape(n, k, m, k) * inputs[:, None, :, None]


def tap_linear_layers(
    module: Module, params: dict[str, Tensor], names: list[str], x: Tensor
) -> dict[str, Tap]:
    """Return taps of the linear layers that own some of the named parameters alone.

    The caller treats the following by rows, and they are left out: layers that are called more than
    once, layers whose inputs have more than one axis besides the samples, and parameters that
    several modules share.
    """
    taps = _taps(module, names)
    if not taps:
        return {}
    try:
        with torch.enable_grad(), _listening(module, taps):
            outputs = functional_call(module, params, (x,))
            sums = [column.sum() for column in outputs.reshape(len(x), -1).unbind(1)]
    except RuntimeError:  # autograd cannot follow this forward pass; the rows will raise the error
        return {}
    used = {
        name: tap
        for name, tap in taps.items()
        if len(tap.inputs) == 1 and tap.inputs[0].ndim == 2 and len(tap.inputs[0]) == len(x)
    }
    if not used:
        return {}
    sources = [tap.outputs[0] for tap in used.values()]
    errors = [
        torch.autograd.grad(total, sources, retain_graph=True, materialize_grads=True)
        for total in sums
    ]
    for tap, per_output in zip(used.values(), zip(*errors, strict=True), strict=True):
        tap.errors = torch.stack(per_output, dim=1)
    return used


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
            taps[name] = Tap([], [], weight, bias)
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
