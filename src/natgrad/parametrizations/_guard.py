"""Checks of a parametrization's arguments: its methods refuse invalid ones with a clear error.

Methods run inside flows and `torch.func` transforms. So only types are checked before a call, which
costs less than a microsecond and reads no entries. Other errors are explained after a call has
failed. NaN inputs give NaN outputs, as in PyTorch itself; directions and flows check entries.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from natgrad._checks import dense as check_dense
from natgrad._checks import describe
from natgrad._checks import integer as check_integer
from natgrad.errors import DtypeError, NatgradError, ShapeError

F = TypeVar("F", bound=Callable[..., Any])
Look = Callable[[Any, Any], None]

_FAILURES = (
    *(ArithmeticError, AttributeError, LookupError, RuntimeError, StopIteration, TypeError),
    ValueError,
)
_CONTRACT = frozenset(
    (
        *("check_inputs", "predict", "jvp", "vjp", "layers", "restrict", "prefers_gram", "design"),
        *("gram", "fisher_default", "hypothesis", "push", "pull", "lift", "evaluate", "adjoint"),
        *("reads_entries", "coefficients", "natural_lift", "surjective", "reachable", "linearized"),
    )
)
_TENSORS = frozenset(("x", "other", "u", "g", "h", "basis", "contrast", "left_root", "right_root"))
_STRUCTURES = frozenset(("params", "v"))


def guard_contract(kind: type) -> None:
    """Guard the methods of the contract that a class defines itself."""
    for name in _CONTRACT & vars(kind).keys():
        method = vars(kind)[name]
        if inspect.isfunction(method) and not getattr(method, "__isabstractmethod__", False):
            setattr(kind, name, guarded(method))


def guarded(method: F) -> F:
    """Return a method that refuses arguments of the wrong type, and explains its failures."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    looks = [_look_at(p.name, optional=p.default is None) for p in parameters]
    by_name = {p.name: look for p, look in zip(parameters, looks, strict=True)}
    tensors = by_name.keys() <= _TENSORS | _STRUCTURES  # then tensors need no further check

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if kwargs or not tensors or [1 for value in args if type(value) is not Tensor]:
            for look, value in zip(looks, args, strict=False):
                look(self, value)
            for name, value in kwargs.items():
                by_name.get(name, _nothing)(self, value)
        try:
            return method(self, *args, **kwargs)
        except _FAILURES as error:
            _refuse(self, method, args, kwargs, error)
            raise

    return call  # type: ignore[return-value]


def explained(method: F) -> F:
    """Return a method that explains its failures; for those that call guarded ones."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except _FAILURES as error:
            _refuse(self, method, args, kwargs, error)
            raise

    return call  # type: ignore[return-value]


def first_line(error: Exception) -> str:
    """Return the first line of a message as a sentence."""
    line = (str(error).splitlines() or [""])[0][:200].rstrip(". ")
    return f"{line or type(error).__name__}."


def _look_at(name: str, *, optional: bool) -> Look:
    """Return the function that checks an argument before the call."""

    def tensor(model: Any, value: Any) -> None:
        if not isinstance(value, Tensor) and not (optional and value is None):
            check_dense(value, name)

    def structure(model: Any, value: Any) -> None:
        if isinstance(value, Tensor):
            return
        if isinstance(value, (tuple, list, dict)):
            for t in value.values() if isinstance(value, dict) else value:
                if not isinstance(t, Tensor):
                    break
            else:
                return
        if name == "params":
            model.check(value)
        raise DtypeError(
            f"{name} must be a tensor, or a tuple or dict of tensors, as the parameters of "
            f"{model!r} are, but is {describe(value)}."
        )

    def layer(model: Any, value: Any) -> None:
        if not (optional and value is None):
            check_integer(value, name, low=0)

    if name in _TENSORS:
        return tensor
    if name in _STRUCTURES:
        return structure
    return layer if name == "layer" else _nothing


def _nothing(model: Any, value: Any) -> None:
    """Check nothing, because the method itself does."""


def _refuse(
    model: Any, method: Callable[..., Any], args: Any, kwargs: Any, error: Exception
) -> None:
    """Replace a failure with a clear error, unless it already is one, or is Python's own."""
    unexplained = isinstance(error, ShapeError) and error.__cause__ is not None
    if isinstance(error, (NatgradError, torch.OutOfMemoryError)) and not unexplained:
        return
    try:
        given = dict(inspect.signature(method).bind(model, *args, **kwargs).arguments)
    except TypeError:  # an argument is missing, or there is one too many
        return
    given.pop("self", None)
    _explain(model, method.__name__, given)
    if not unexplained:
        raise ShapeError(
            f"{type(model).__name__}.{method.__name__} cannot take "
            + ", ".join(f"{name}: {describe(value)}" for name, value in given.items())
            + f". The reason: {first_line(error)}"
        ) from error


def _explain(model: Any, method: str, given: dict[str, Any]) -> None:
    """Raise the error of the first check that the arguments fail, if there is one."""
    try:
        if "params" in given:
            model.check(given["params"])
        for name, value in given.items():
            if isinstance(value, Tensor):
                check_dense(value, name)
            if name in ("x", "other") and "params" in given and method != "check_inputs":
                model.check_inputs(given["params"], value)
    except NatgradError:
        raise
    except Exception:  # e.g. inside vmap, where entries cannot be read
        return
