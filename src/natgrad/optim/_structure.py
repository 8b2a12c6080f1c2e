"""Notices a model that has changed behind the optimizer's back."""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.errors import InvalidInputError
from natgrad.optim._layers.linear import Layer


class Structure:
    """A model's parameters and layers as they were when the optimizer was made.

    Args:
        model: The model.
        layers: Its layers with hooks, by name.

    Attributes:
        names: Name of every parameter.
    """

    def __init__(self, model: Module, layers: Mapping[str, Layer]) -> None:
        self.model = model
        self._params = _parameters(dict(model.named_modules()))
        self._looks = {name: _look(p) for name, p in self._params.items()}
        self._modules = {name: layer.module for name, layer in layers.items()}
        self.names: dict[Tensor, str] = {p: name for name, p in model.named_parameters()}

    def check(self) -> None:
        """Raise if the model is no longer the one that the optimizer follows.

        Raises:
            InvalidInputError: If parameters or layers were added, removed, replaced, converted,
                moved, frozen or unfrozen.

        Example:
            >>> model = torch.nn.Linear(2, 1)
            >>> structure = Structure(model, {})
            >>> structure.check()
            >>> _ = model.double()
            >>> structure.check()
            Traceback (most recent call last):
            ...
            natgrad.errors.InvalidInputError: the model has changed since the optimizer was ...
        """
        found = self._change()
        if found is not None:
            raise InvalidInputError(
                f"the model has changed since the optimizer was constructed: {found}. The step is "
                "refused and the weights are untouched. Undo the change, or construct a new "
                "optimizer, whose state begins anew."
            )

    def _change(self) -> str | None:
        modules = dict(self.model.named_modules())
        now = _parameters(modules)
        if now.keys() != self._params.keys():
            added = [name for name in now if name not in self._params]
            lost = [name for name in self._params if name not in now]
            return " and ".join(
                f"{', '.join(map(repr, names))} {'are' if len(names) > 1 else 'is'} {what}"
                for names, what in ((added, "new"), (lost, "gone"))
                if names
            )
        for name, p in self._params.items():
            if now[name] is not p:
                return f"{name!r} is another tensor (load weights without assign=True)"
            if _look(p) != self._looks[name]:
                return _difference(name, self._looks[name], _look(p))
        for name, module in self._modules.items():
            if modules[name] is not module:
                return f"the layer {name!r} is another module"
        return None


def _parameters(modules: Mapping[str, Module]) -> dict[str, Tensor]:
    """Return all parameters by name, tied ones by each of theirs."""
    return {
        f"{name}.{key}" if name else key: p
        for name, module in modules.items()
        for key, p in module._parameters.items()
        if p is not None
    }


def _look(p: Tensor) -> tuple[object, ...]:
    return p.shape, p.dtype, p.device, p.requires_grad


def _difference(name: str, before: tuple[object, ...], now: tuple[object, ...]) -> str:
    for what, a, b in zip(("shape", "dtype", "device"), before, now, strict=False):
        if a != b:
            a, b = (tuple(x) if isinstance(x, torch.Size) else x for x in (a, b))
            return f"the {what} of {name!r} was {a} and is {b}"
    if now[-1]:
        return f"{name!r} was frozen and now requires a gradient"
    return f"{name!r} is frozen (to hold parameters for a while, give their group lr=0 instead)"
