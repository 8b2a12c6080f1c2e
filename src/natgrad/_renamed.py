"""Options under their old names, which work for one more release, with a warning."""

import functools
import warnings
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from natgrad.errors import InvalidInputError

A = ParamSpec("A")
T = TypeVar("T")


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
        solve calls this option rtol now, not tolerance; version 0.3 removes the old name.
    """

    def decorate(function: Callable[A, T]) -> Callable[A, T]:
        @functools.wraps(function)
        def call(*args: A.args, **kwargs: A.kwargs) -> T:
            name = function.__name__
            for old in names.keys() & kwargs.keys():
                new = names[old]
                if new in kwargs:
                    raise InvalidInputError(
                        f"{name} got both {new} and {old}, which is its old name; leave out {old}."
                    )
                warnings.warn(
                    f"{name} calls this option {new} now, not {old}; version 0.3 removes "
                    "the old name.",
                    DeprecationWarning,
                    stacklevel=2,
                )
                kwargs[new] = kwargs.pop(old)
            return function(*args, **kwargs)

        return call

    return decorate
