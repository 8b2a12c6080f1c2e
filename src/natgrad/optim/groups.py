"""Groups of parameters with a learning rate and a weight decay of their own."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.errors import InvalidInputError

OPTIONS = ("lr", "weight_decay")


def divide(
    model: Module, trainable: Sequence[Tensor], groups: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Return torch's parameter groups: those given, and one for all other parameters.

    Args:
        model: The model.
        trainable: Its parameters that are optimized.
        groups: Each a mapping with `params`, and `lr` or `weight_decay` where they differ.

    Example:
        >>> layer = torch.nn.Linear(2, 1)
        >>> found = divide(layer, list(layer.parameters()), [{"params": [layer.bias], "lr": 0.1}])
        >>> [(len(group["params"]), group.get("lr")) for group in found]
        [(1, 0.1), (1, None)]
    """
    left = {p: None for p in trainable}
    made: list[dict[str, Any]] = []
    for group in groups or ():
        for option in group:
            if option not in ("params", *OPTIONS):
                raise InvalidInputError(
                    f"a group has params, {' and '.join(OPTIONS)}, but got {option!r}."
                )
        params = group["params"]
        params = [params] if isinstance(params, Tensor) else list(params)
        own = [p for p in params if p.requires_grad]
        strangers = [p for p in own if p not in left]
        if strangers:
            raise InvalidInputError(
                f"{len(strangers)} parameters of a group are not the model's, or are in two groups."
            )
        for p in own:
            del left[p]
        made.append({**group, "params": own})
    if left:
        made.append({"params": list(left)})
    return [group for group in made if group["params"]]


def rates(groups: Sequence[Mapping[str, Any]]) -> tuple[float, dict[Tensor, float] | None]:
    """Return the largest learning rate, and every parameter's own in units of it.

    None stands for all ones.
    """
    largest = max(float(group["lr"]) for group in groups)
    if largest == 0 or all(float(group["lr"]) == largest for group in groups):
        return largest, None
    return largest, {p: float(g["lr"]) / largest for g in groups for p in g["params"]}


def decay(groups: Sequence[Mapping[str, Any]]) -> None:
    """Shrink weights by 1 − lr · weight_decay, apart from their gradients (AdamW's way)."""
    for group in groups:
        amount = float(group["lr"]) * float(group["weight_decay"])
        moved = [p for p in group["params"] if p.grad is not None]
        if amount and moved:
            torch._foreach_mul_(moved, 1 - amount)
