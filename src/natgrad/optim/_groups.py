"""Groups of parameters with a learning rate and a weight decay of their own."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module

from natgrad._checks import describe, number, refuse_unknown
from natgrad.errors import DtypeError, InvalidInputError

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
        >>> from torch.nn import Linear
        >>> layer = Linear(2, 1)
        >>> found = divide(layer, list(layer.parameters()), [{"params": [layer.bias], "lr": 0.1}])
        >>> [(len(group["params"]), group.get("lr")) for group in found]
        [(1, 0.1), (1, None)]
    """
    left = {p: None for p in trainable}
    made: list[dict[str, Any]] = []
    for i, group in enumerate(_listed(groups)):
        where = f"groups[{i}]"
        if not isinstance(group, Mapping) or "params" not in group:
            raise DtypeError(
                f"{where} must be a mapping with 'params', but is {describe(group)}; try "
                "{'params': [...], 'lr': 0.1}."
            )
        refuse_unknown(group, ("params", *OPTIONS), where)
        own_options = {
            name: number(group[name], f"{where}[{name!r}]", low=0)
            for name in OPTIONS
            if name in group
        }
        params = _parameters(group["params"], where)
        own = [p for p in params if p.requires_grad]
        strangers = [p for p in own if p not in left]
        if strangers:
            raise InvalidInputError(
                f"{len(strangers)} parameters of a group are not the model's, or are in two groups."
            )
        for p in own:
            del left[p]
        made.append({**own_options, "params": own})
    if left:
        made.append({"params": list(left)})
    return [group for group in made if group["params"]]


def _listed(groups: Any) -> Sequence[Any]:
    if groups is None:
        return ()
    if isinstance(groups, Sequence) and not isinstance(groups, (str, bytes)):
        return groups
    raise DtypeError(
        f"groups must be a list of mappings, but is {describe(groups)}; try "
        "[{'params': [...], 'lr': 0.1}]."
    )


def _parameters(params: Any, where: str) -> list[Tensor]:
    """Return the parameters of a group: one, or any iterable of them."""
    found = [params] if isinstance(params, Tensor) or not isinstance(params, Iterable) else params
    found = list(found)
    for p in found:
        if not isinstance(p, Tensor):
            raise DtypeError(
                f"{where}['params'] must hold parameters of the model, but there is {describe(p)}."
            )
    return found
