"""Options under names of the release before: they work for one more release, with a warning."""

import functools
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from natgrad.errors import InvalidInputError

A = ParamSpec("A")
T = TypeVar("T")


def rename(
    options: dict[str, Any], old: str, new: str, where: str, *, stacklevel: int = 3
) -> dict[str, Any]:
    """Return keyword options with `old` under its new name, and warn if it was there.

    Args:
        options: What the caller gave.
        old: The name until version 0.1.
        new: The name now.
        where: The function whose option it is.
        stacklevel: Whose line the warning names; 3 is the caller of the caller.

    Raises:
        InvalidInputError: If both names came.

    Example:
        >>> rename({"center": "none"}, "centring", "center", "complete")
        {'center': 'none'}
    """
    if old not in options:
        return options
    if new in options:
        raise InvalidInputError(
            f"{where} got both {new} and {old}, which is its old name; leave out {old}."
        )
    warnings.warn(
        f"{where} calls this option {new} now, not {old}; the old name goes with version 0.3.",
        DeprecationWarning,
        stacklevel=stacklevel,
    )
    return {new if name == old else name: value for name, value in options.items()}


def renamed(**names: str) -> Callable[[Callable[A, T]], Callable[A, T]]:
    """Let a function take keywords by their old names too.

    Args:
        **names: New names by old ones.

    Example:
        >>> @renamed(tolerance="rtol")
        ... def solve(*, rtol=1e-6):
        ...     return rtol
        >>> with warnings.catch_warnings(record=True, action="always") as seen:
        ...     solve(tolerance=0.1)
        0.1
        >>> print(seen[0].message)
        solve calls this option rtol now, not tolerance; the old name goes with version 0.3.
    """

    def decorate(function: Callable[A, T]) -> Callable[A, T]:
        @functools.wraps(function)
        def call(*args: A.args, **kwargs: A.kwargs) -> T:
            given: dict[str, Any] = dict(kwargs)
            for old, new in names.items():
                given = rename(given, old, new, function.__name__)
            return function(*args, **given)

        return call

    return decorate
