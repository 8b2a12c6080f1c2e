"""Readable errors for calls that do not fit a signature, with the nearest valid name."""

import functools
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

from natgrad._checks import refuse_unknown
from natgrad.errors import DtypeError

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


def named(call: Callable[P, R]) -> Callable[P, R]:
    """Return the function with a readable error for calls that do not fit its signature.

    Calls that fit cost nothing more, because the signature is read only after Python's TypeError.

    Example:
        >>> named(lambda *, rate=1.0: rate)(rat=2.0)
        Traceback (most recent call last):
        ...
        natgrad.errors.InvalidInputError: <lambda> has no option 'rat'. Did you mean 'rate'?
    """
    signature = inspect.signature(call)
    known = [name for name in signature.parameters if name not in ("self", "cls")]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    @functools.wraps(call)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return call(*args, **kwargs)
        except TypeError:
            try:
                signature.bind(*args, **kwargs)
            except TypeError as error:
                where = checked.__qualname__.removesuffix(".__init__")
                # A call that passes further options on may have unknown names. Only a name
                # close to a known one is wrong here.
                suspects = [k for k in kwargs if get_close_matches(k, known, 1, 0.7)]
                refuse_unknown(suspects if open_ended else kwargs, known, where)
                raise DtypeError(f"{where}: {error}. {_takes(signature)}") from None
            raise  # the error comes from inside the call

    return checked


def _takes(signature: inspect.Signature) -> str:
    """Return a sentence about the arguments of a call."""
    found = [p for name, p in signature.parameters.items() if name not in ("self", "cls")]
    bare = [p.name for p in found if p.kind is not p.KEYWORD_ONLY]
    by_name = [f"{p.name}=" for p in found if p.kind is p.KEYWORD_ONLY]
    parts = [", ".join(bare), "by name " + ", ".join(by_name) if by_name else ""]
    listed = "; ".join(part for part in parts if part)
    return f"It takes {listed}." if listed else "It takes no arguments."


def options(kind: type[C]) -> type[C]:
    """Return the class with a readable error for calls that do not fit its constructor."""
    kind.__init__ = named(kind.__init__)  # type: ignore[method-assign]
    kind.__init__.__qualname__ = f"{kind.__name__}.__init__"
    return kind
