"""Checks of states: everything is checked before anything is loaded."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import dense, describe, integer, number
from natgrad.errors import DtypeError, InvalidInputError

# Number of names that a message lists.
_LISTED = 4


def checked(check: Callable[[], object]) -> None:
    """Run the checks of a state, and complete the message of the first one that fails.

    Raises:
        InvalidInputError: If a check fails.

    Example:
        >>> checked(lambda: entries({"step": 1}, "natural", ["steps"]))
        Traceback (most recent call last):
        ...
        natgrad.errors.InvalidInputError: this state_dict does not fit: natural lacks 'steps'. ...
    """
    try:
        check()
    except InvalidInputError as error:
        raise InvalidInputError(
            f"this state_dict does not fit: {error} It comes from another model, other options, a "
            "damaged file or another version of natgrad; nothing was loaded. Construct the "
            "optimizer as in the run that saved it, or begin with a new one."
        ) from error


def entries(state: Any, where: str, names: Iterable[str]) -> Mapping[str, Any]:
    """Return a mapping that has exactly these names.

    Raises:
        InvalidInputError: If the state is anything else.
    """
    if not isinstance(state, Mapping):
        raise DtypeError(f"{where} must be a mapping, but is {describe(state)}.")
    wanted = list(names)
    if missing := [name for name in wanted if name not in state]:
        raise InvalidInputError(f"{where} lacks {_some(missing)}.")
    if strange := [name for name in state if name not in wanted]:
        raise InvalidInputError(f"{where} has {_some(strange)}, which is not known here.")
    return state


def _some(names: list[Any]) -> str:
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(map(describe, names[:_LISTED])) + more


def real(value: Any, where: str, **bounds: Any) -> float:
    """Return a number like `natgrad._checks.number`, but refuse tensors: states hold plain ones."""
    if isinstance(value, Tensor):
        raise DtypeError(f"{where} must be a plain number, but is {describe(value)}.")
    return number(value, where, **bounds)


def check_whole(saved: Any, own: list[dict[str, Any]], natural: Iterable[str]) -> Mapping[str, Any]:
    """Return natgrad's part of an optimizer's state.

    Args:
        saved: The state to check.
        own: The optimizer's parameter groups.
        natural: The entries that natgrad's part must have.

    Raises:
        InvalidInputError: If an entry is missing, or the groups differ.
    """
    if isinstance(saved, Mapping) and "natural" not in saved:
        raise InvalidInputError("it has no 'natural', as if saved by another optimizer.")
    known = ("state", "param_groups", "natural")
    mine = saved  # torch allows further entries at the top
    if isinstance(saved, Mapping):
        mine = {name: value for name, value in saved.items() if name in known}
    entries(mine, "it", known)
    entries(saved["state"], "state", ())
    check_groups(saved["param_groups"], own)
    return entries(saved["natural"], "natural", natural)


def check_groups(saved: Any, own: list[dict[str, Any]]) -> None:
    """Raise unless saved parameter groups match the optimizer's in number and sizes."""
    if not isinstance(saved, (list, tuple)) or len(saved) != len(own):
        raise DtypeError(f"param_groups must be a list of {len(own)}, but is {describe(saved)}.")
    for i, (group, mine) in enumerate(zip(saved, own, strict=True)):
        where = f"param_groups[{i}]"
        if not isinstance(group, Mapping):
            raise DtypeError(f"{where} must be a mapping, but is {describe(group)}.")
        if missing := [name for name in mine if name in _RATES and name not in group]:
            raise InvalidInputError(f"{where} lacks {_some(missing)}.")
        for name in _RATES:
            if name in group:
                number(group[name], f"{where}.{name}", low=0)
        params = group.get("params")
        if not isinstance(params, (list, tuple)) or len(params) != len(mine["params"]):
            count = len(mine["params"])
            raise DtypeError(
                f"{where}.params must be a list of {count}, but is {describe(params)}."
            )
        for j, p in enumerate(params):
            integer(p, f"{where}.params[{j}]", low=0)


_RATES = ("lr", "weight_decay", "initial_lr")


def check_random(state: Any, where: str, generator: torch.Generator) -> None:
    """Raise unless this is the state of a random generator of this kind."""
    held: Tensor = dense(state, where)
    like = generator.get_state()
    try:
        if held.dtype != like.dtype or held.shape != like.shape:
            raise DtypeError(f"{where} must be {describe(like)}, but is {describe(held)}.")
        torch.Generator(generator.device).set_state(held.cpu().contiguous())
    except RuntimeError as error:
        raise InvalidInputError(f"{where} must be that of a generator: {error}.") from None
