"""The options of a direction, checked before the first step."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from natgrad._checks import describe, function, refuse_unknown
from natgrad.errors import DtypeError


def check_options(
    direction: Callable[..., Any], options: Mapping[str, Any], caller: Callable[..., Any]
) -> None:
    """Raise unless `direction` is a function that takes the options.

    Args:
        direction: `euclidean`, `natural`, or a function with their arguments.
        options: Keywords meant for it.
        caller: The function that was called; its own keywords are suggested for misspelled ones.

    Example:
        >>> from natgrad import euclidean, integrate
        >>> check_options(euclidean, {"rtoll": 1e-3}, integrate)
        Traceback (most recent call last):
        ...
        natgrad.errors.InvalidInputError: integrate of euclidean has no option 'rtoll'. Did you ...
    """
    if isinstance(direction, str):
        known = {"euclidean": "natgrad.euclidean", "natural": "natgrad.natural"}
        guess = known.get(direction, "natgrad.euclidean or natgrad.natural")
        raise DtypeError(
            f"direction must be a function, but is {describe(direction)}; pass the function "
            f"{guess}, without quotation marks."
        )
    function(direction, "direction")
    if isinstance(direction, type):
        raise DtypeError(f"direction must be a function, but is {describe(direction)}.")
    if not options:
        return
    known = _keywords(direction)
    if known is not None:
        name = getattr(direction, "__name__", "this direction")
        own = _keywords(caller, var_keyword=True) or []
        refuse_unknown(options, [*known, *own], f"{caller.__name__} of {name}")


def _keywords(call: Callable[..., Any], var_keyword: bool = False) -> list[str] | None:
    """Return the names of keyword-only parameters; None if any is accepted or none is known."""
    try:
        parameters = inspect.signature(call).parameters.values()
    except (TypeError, ValueError):
        return None
    if not var_keyword and any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
