"""Checks of the arguments of `natgrad.compare` and `natgrad.complete`."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
from torch import Tensor

from natgrad._checks import dense, describe, integer, number, numbers
from natgrad.errors import DtypeError, InvalidInputError, ShapeError

DEEPEST = 1000
"""Largest depth of a product; memory grows with it."""


def column(values: Any, name: str) -> list[Any]:
    """Return a sequence, an array, a series or a tensor of one dimension as a list.

    Raises:
        DtypeError: If it is none of these, or a tensor without numbers.
        ShapeError: If it has more or fewer dimensions.

    Example:
        >>> column(np.arange(3), "rows"), column((n for n in "ab"), "columns")
        ([0, 1, 2], ['a', 'b'])
    """
    if isinstance(values, Tensor):
        values = dense(values, name).detach()
    if hasattr(values, "tolist"):
        if np.ndim(values) != 1:
            raise ShapeError(
                f"{name} must have one dimension, but have shape {tuple(np.shape(values))}."
            )
        return list(values.tolist())
    if isinstance(values, str | bytes | Mapping | AbstractSet) or not isinstance(values, Iterable):
        raise DtypeError(
            f"{name} must be a sequence, with one item for each row of the table, but are "
            f"{describe(values)}."
        )
    return list(values)


def texts(values: Any, name: str) -> tuple[str, ...]:
    """Return names as a tuple; one name may be given alone.

    Raises:
        DtypeError: If they are not texts.

    Example:
        >>> texts("age", "drop"), texts(["age", "sex"], "drop")
        (('age',), ('age', 'sex'))
    """
    if isinstance(values, str):
        return (values,)
    if not isinstance(values, tuple | list) or not all(isinstance(one, str) for one in values):
        raise DtypeError(f"{name} must be a tuple of names of columns, but is {describe(values)}.")
    return tuple(values)


def several(values: Any, name: str, what: Sequence[str]) -> tuple[Any, ...]:
    """Return a tuple or list with as many parts as `what` names, as a tuple.

    Raises:
        DtypeError: If it is neither, or has more or fewer parts.
    """
    if not isinstance(values, tuple | list) or len(values) != len(what):
        raise DtypeError(
            f"{name} must be a tuple of {' and '.join(what)}, but is {describe(values)}."
        )
    return tuple(values)


def integers(values: Any, name: str, *, low: int, high: int | None = None) -> tuple[int, ...]:
    """Return some different integers as a tuple.

    Raises:
        InvalidInputError: If there are none, if one is not an integer or out of bounds, or if two
            are equal.

    Example:
        >>> integers([1, 4], "depths", low=1)
        (1, 4)
    """
    if not isinstance(values, tuple | list | range) or not values:
        raise DtypeError(
            f"{name} must be a tuple of different integers from {low} on, but are "
            f"{describe(values)}."
        )
    found = tuple(integer(value, f"each of {name}", low=low, high=high) for value in values)
    if len(set(found)) < len(found):
        raise InvalidInputError(f"{name} must be different integers, but are {found}.")
    return found


def positive(values: Any, name: str, *, high: float) -> tuple[float, ...]:
    """Return some positive numbers as a tuple.

    Raises:
        InvalidInputError: If there are none, or one is not positive or too large.

    Example:
        >>> positive([1, 0.1], "scales", high=10)
        (1.0, 0.1)
    """
    if not numbers(values, name):
        raise InvalidInputError(f"{name} must be given, but there are none.")
    return tuple(
        number(value, f"each of {name}", low=0, low_open=True, high=high) for value in values
    )
