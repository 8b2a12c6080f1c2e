"""Checks of arguments, with errors that suggest what was probably meant."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, get_args

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.parameter import is_lazy

from natgrad._checks import choice, dense, describe, number, refuse_unknown
from natgrad.errors import DeviceError, DtypeError, InvalidInputError
from natgrad.optim._criteria.observed import observed

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")

# Options that a group of parameters may have.
_OF_GROUPS = ("lr", "weight_decay")


def keep(record: object, **values: object) -> None:
    """Store checked values in a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(record, name, value)


def literal(value: Any, name: str, kind: Any) -> Any:
    """Return the value if it belongs to a `Literal` type; otherwise raise `InvalidInputError`."""
    return choice(value, name, get_args(kind))


def rule(value: Any, name: str, kinds: tuple[type, ...], *, hint: str = "") -> None:
    """Raise `DtypeError` unless a value is an instance of one of some dataclasses.

    Args:
        value: The value.
        name: Name of the option.
        kinds: The dataclasses.
        hint: A sentence to add if no dataclass has a similar name.

    Example:
        >>> from natgrad.optim.step_length import EqualShare, Quadratic
        >>> rule("equal_share", "step_length", (EqualShare, Quadratic))
        Traceback (most recent call last):
        ...
        natgrad.errors.DtypeError: step_length must be EqualShare() or Quadratic(), but is ...
    """
    if isinstance(value, kinds):
        return
    calls = {kind.__name__: _call(kind) for kind in kinds}
    guess = value.__name__ if isinstance(value, type) else value
    if isinstance(guess, str):
        plain = {known.lower(): known for known in calls}
        close = difflib.get_close_matches(_plain(guess), plain, n=1, cutoff=0.6)
        hint = f"Did you mean {calls[plain[close[0]]]}?" if close else hint
    *most, last = calls.values()
    listed = f"{', '.join(most)} or {last}" if most else last
    raise DtypeError(f"{name} must be {listed}, but is {describe(value)}. {hint}".rstrip())


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def _call(kind: type) -> str:
    """Return a constructor call as text, with dots for required arguments."""
    fields = dataclasses.fields(kind)
    missing = dataclasses.MISSING
    needs = any(f.default is missing and f.default_factory is missing for f in fields)
    return f"{kind.__name__}({'…' if needs else ''})"


def trainable(model: Any, likelihood: Any) -> list[Tensor]:
    """Return the trainable parameters of a model; raise a typed error if an argument is invalid.

    Raises:
        DtypeError: If the model is not a module, or the likelihood is not a likelihood.
        DeviceError: If a parameter is on the meta device.
        InvalidInputError: If nothing can be trained.
    """
    _check_model(model)
    observed(likelihood)
    params: list[Tensor] = []
    for name, p in model.named_parameters():
        if is_lazy(p):
            raise InvalidInputError(
                f"the parameter {name!r} has no shape yet. Run the model once first."
            )
        if p.requires_grad:
            dense(p, f"the parameter {name!r}")
            if not p.is_floating_point():
                raise DtypeError(f"the parameter {name!r} must be real, but is {p.dtype}.")
            params.append(p)
    if not params:
        raise InvalidInputError("the model has no trainable parameter.")
    return params


def _check_model(model: Any) -> None:
    if isinstance(model, Module):
        return
    hint = ""
    if isinstance(model, type) and issubclass(model, Module):
        hint = f" Make one: {model.__name__}(…)."
    elif isinstance(model, (Tensor, Iterable)) and not isinstance(model, str):
        hint = (
            " Pass the model itself and not its parameters, and the likelihood with it: "
            "NGD(model, torch.nn.CrossEntropyLoss())."
        )
    raise DtypeError(f"model must be a torch.nn.Module, but is {describe(model)}.{hint}")


def check_generator(generator: Any, like: Tensor) -> None:
    """Raise unless this is None or a random generator on the device of the model."""
    if generator is None:
        return
    if not isinstance(generator, torch.Generator):
        raise DtypeError(
            f"generator must be a torch.Generator, but is {describe(generator)}; try "
            "torch.Generator().manual_seed(0)."
        )
    if generator.device.type != like.device.type:
        raise DeviceError(
            f"generator must be on the device of the model, {like.device}, but is on "
            f"{generator.device}; try torch.Generator({like.device.type!r})."
        )


def rates_of_groups(lr: float, weight_decay: float, momentum: float) -> dict[str, float]:
    """Return the numbers that groups of parameters have by default; raise if one is impossible."""
    return {
        "lr": number(lr, "lr", low=0, low_open=True),
        "weight_decay": number(weight_decay, "weight_decay", low=0),
        "momentum": number(momentum, "momentum", low=0, high=1, high_open=True),
    }


def check_average(a: float | None) -> None:
    """Raise unless this is None or positive: the weight of the latest in an average of weights."""
    if a is not None:
        number(a, "weight_average", low=0, low_open=True)


def check_state_dtype(dtype: Any) -> None:
    """Raise unless this is None or torch.bfloat16, which has the range of single precision."""
    if dtype is None or dtype is torch.bfloat16:
        return
    if isinstance(dtype, torch.dtype):
        raise InvalidInputError(f"state_dtype must be torch.bfloat16 or None, but is {dtype}.")
    raise DtypeError(f"state_dtype must be torch.bfloat16 or None, but is {describe(dtype)}.")


def divide(
    model: Module, trainable: Sequence[Tensor], groups: Sequence[Mapping[str, Any]] | None
) -> list[dict[str, Any]]:
    """Return torch's parameter groups: those given, and one for all other parameters.

    Args:
        model: The model.
        trainable: Its parameters that are optimized.
        groups: Mappings with `params`, and with `lr` or `weight_decay` if they differ.

    Example:
        >>> from torch.nn import Linear
        >>> layer = Linear(2, 1)
        >>> found = divide(layer, list(layer.parameters()), [{"params": [layer.bias], "lr": 0.1}])
        >>> [(len(group["params"]), group.get("lr")) for group in found]
        [(1, 0.1), (1, None)]
    """
    left = dict.fromkeys((*trainable, *model.parameters()))  # frozen ones may be trained later
    made: list[dict[str, Any]] = []
    for i, group in enumerate(_listed(groups)):
        where = f"groups[{i}]"
        if not isinstance(group, Mapping) or "params" not in group:
            raise DtypeError(
                f"{where} must be a mapping with 'params', but is {describe(group)}; try "
                "{'params': [...], 'lr': 0.1}."
            )
        refuse_unknown(group, ("params", *_OF_GROUPS), where)
        own_options = {
            name: number(group[name], f"{where}[{name!r}]", low=0)
            for name in _OF_GROUPS
            if name in group
        }
        params = _parameters(group["params"], where)
        strangers = [p for p in params if p not in left]
        if strangers:
            raise InvalidInputError(
                f"{len(strangers)} parameters of a group are not the model's, or are in two groups."
            )
        for p in params:
            left.pop(p, None)
        made.append({**own_options, "params": params})
    made.append({"params": [p for p in left if p.requires_grad]})
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
