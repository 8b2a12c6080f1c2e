"""Recurrent layers: one block per matrix, with one row per time step."""

from typing import Any

import torch
from torch.nn import Module, RNNBase

from natgrad.optim._layers.found import FoundLayer
from natgrad.optim._layers.linear import Layer


class RecurrentLayer(FoundLayer):
    """One matrix of `torch.nn.LSTM`, `GRU`, `RNN` or one of their cells."""

    fused = True

    @classmethod
    def all_of(cls, name: str, module: Module) -> list[Layer]:
        """Return a layer for the weights of inputs and of states, of every level and direction.

        Example:
            >>> found = RecurrentLayer.all_of("r", torch.nn.GRU(2, 3, num_layers=2))
            >>> [layer.name for layer in found][:3], found[1].shape
            (['r.weight_ih_l0', 'r.weight_hh_l0', 'r.weight_ih_l1'], (9, 4))
        """
        found: list[Layer] = []
        for weight, p in module._parameters.items():
            if p is None or not p.requires_grad or weight[:9] not in ("weight_ih", "weight_hh"):
                continue
            bias = weight.replace("weight", "bias")
            bias_or_none = bias if module._parameters.get(bias) is not None else None
            found.append(cls(name, module, weight, bias_or_none, leads=not found))
        return found

    @classmethod
    def unsuitable(cls, module: Module) -> str | None:
        """Return why the layer has no blocks, or None if it has."""
        if isinstance(module, RNNBase) and module.proj_size:
            return "an LSTM with projections"
        return None


def unfused(active: bool) -> Any:
    """Switch off fused kernels, whose products are in no graph; return the previous setting.

    Example:
        >>> before = unfused(True)
        >>> torch.backends.mkldnn.enabled
        False
        >>> restore(before)
    """
    before = torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    if active:
        torch._C._set_mkldnn_enabled(False)
        torch._C._set_cudnn_enabled(False)
    return before


def restore(before: tuple[bool, bool]) -> None:
    """Switch fused kernels on again, if they were on."""
    torch._C._set_mkldnn_enabled(before[0])
    torch._C._set_cudnn_enabled(before[1])
