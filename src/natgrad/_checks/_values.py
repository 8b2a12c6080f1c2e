"""Checks of numbers, names, paths and objects."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from natgrad._checks._described import describe, is_tensor
from natgrad._checks._tensors import dense, is_strided
from natgrad.errors import DtypeError, InvalidInputError, ShapeError

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
S = TypeVar("S", bound=str)

LARGEST_INTEGER = 2**63 - 1
"""What a size, a count or a seed must fit."""


def nearest(name: str, options: Iterable[str]) -> str:
    """Return the hint that ends a sentence about an unknown name, or the list of known ones.

    Example:
        >>> nearest("rtoll", ["rtol", "atol"]), nearest("x", ["mean", "sum"])
        ("Did you mean 'rtol'?", "Choose from 'mean', 'sum'.")
    """
    known = list(options)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"Did you mean {close[0]!r}?"
    return f"Choose from {', '.join(map(repr, known))}." if known else "There are no options."


def number(
    value: Any,
    name: str,
    *,
    low: float | None = None,
    high: float | None = None,
    low_open: bool = False,
    high_open: bool = False,
    infinite: bool = False,
) -> float:
    """Return a real number as a float: of Python, of NumPy, or a tensor without dimensions.

    Args:
        value: What came.
        name: How the caller knows it.
        low: Smallest value; None for no bound.
        high: Largest value; None for no bound.
        low_open: Whether `low` itself is refused.
        high_open: Whether `high` itself is refused.
        infinite: Whether an infinity within the bounds is accepted. NaN never is.

    Raises:
        DtypeError: If it is no real number; `True` and `"1"` are none.
        InvalidInputError: If it is NaN, infinite, too large for a float, or out of bounds.

    Example:
        >>> number(1, "damping", low=0)
        1.0
        >>> number(1.5, "momentum", low=0, high=1, high_open=True)
        Traceback (most recent call last):
        ...
        natgrad.errors.InvalidInputError: momentum must be a number of at least 0 and below 1, ...
    """
    if type(value) is float and math.isfinite(value) and not (high_open or low_open):
        if (low is None or value >= low) and (high is None or value <= high):
            return value
    wanted = "a number" + _bounds(low, high, low_open, high_open)
    if is_tensor(value) and _is_scalar(value):
        value = value.item()
    if isinstance(value, bool) or not isinstance(value, Real):
        raise DtypeError(f"{name} must be {wanted}, but is {describe(value)}.")
    try:
        found = float(value)
    except OverflowError:
        found = math.nan
    if math.isnan(found) or (math.isinf(found) and not infinite):
        raise InvalidInputError(f"{name} must be {wanted} and finite, but is {describe(value)}.")
    low_ok = low is None or (found > low if low_open else found >= low)
    high_ok = high is None or (found < high if high_open else found <= high)
    if not (low_ok and high_ok):
        raise InvalidInputError(f"{name} must be {wanted}, but is {describe(value)}.")
    return found


def numbers(
    value: Any, name: str, *, count: int | None = None, low: float | None = None
) -> tuple[float, ...]:
    """Return finite real numbers as a tuple of floats, from a sequence, an array or a tensor.

    Args:
        value: What came.
        name: How the caller knows it.
        count: How many there must be; None for any number of them.
        low: Smallest value of each; None for no bound.
    """
    wanted = "a sequence of numbers" if count is None else f"a sequence of {count} numbers"
    if is_tensor(value):
        value = dense(value, name).tolist()
    elif hasattr(value, "tolist"):  # NumPy's arrays and scalars.
        value = value.tolist()
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        raise DtypeError(f"{name} must be {wanted}, but is {describe(value)}.")
    if count is not None and len(value) != count:
        raise ShapeError(f"{name} must be {wanted}, but is {describe(value)}.")
    return tuple(number(v, f"{name}[{i}]", low=low) for i, v in enumerate(value))


def integer(value: Any, name: str, *, low: int | None = None, high: int | None = None) -> int:
    """Return an integer of Python or NumPy as an int.

    Args:
        value: What came.
        name: How the caller knows it.
        low: Smallest value; None for no bound.
        high: Largest value; None for what fits 64 bits.

    Raises:
        DtypeError: If it is no integer; `True` and `3.0` are none.
        InvalidInputError: If it is out of bounds.

    Example:
        >>> integer(3, "depth", low=1)
        3
        >>> integer(0, "depth", low=1)
        Traceback (most recent call last):
        ...
        natgrad.errors.InvalidInputError: depth must be an integer of at least 1, but is 0.
    """
    wanted = "an integer" + _bounds(low, high, False, False)
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise DtypeError(f"{name} must be {wanted}, but is {describe(value)}.")
    found = int(value)
    if (low is not None and found < low) or (high is not None and found > high):
        raise InvalidInputError(f"{name} must be {wanted}, but is {describe(value)}.")
    if abs(found) > LARGEST_INTEGER:
        raise InvalidInputError(f"{name} must be {wanted} that fits 64 bits, but is larger.")
    return found


def integers(
    value: Any, name: str, *, count: int | None = None, low: int | None = None
) -> tuple[int, ...]:
    """Return a tuple or a list of integers as a tuple of ints; see `integer` and `numbers`."""
    wanted = "a tuple of integers" if count is None else f"a tuple of {count} integers"
    if not isinstance(value, (tuple, list)):
        raise DtypeError(f"{name} must be {wanted}, but is {describe(value)}.")
    if count is not None and len(value) != count:
        raise ShapeError(f"{name} must be {wanted}, but is {describe(value)}.")
    return tuple(integer(v, f"{name}[{i}]", low=low) for i, v in enumerate(value))


def path(value: Any, name: str) -> Path:
    """Return a path, from a string or an object that stands for one."""
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise DtypeError(f"{name} must be a path, such as 'data.csv', but is {describe(value)}.")
    return Path(value)


def flag(value: Any, name: str) -> bool:
    """Return True or False; raise `DtypeError` at anything else, such as 1 or "yes"."""
    if not isinstance(value, bool):
        raise DtypeError(f"{name} must be True or False, but is {describe(value)}.")
    return value


def choice(value: Any, name: str, options: Iterable[S]) -> S:
    """Return the option that the value names; options are strings.

    Raises:
        InvalidInputError: If it is none of them; the sentence offers the nearest.

    Example:
        >>> choice("mena", "reduction", ("mean", "sum"))
        Traceback (most recent call last):
        ...
        natgrad.errors.InvalidInputError: reduction must be 'mean' or 'sum', but is 'mena'. Did ...
    """
    known = tuple(options)
    if isinstance(value, str):
        for option in (o for o in known if o == value):
            return option
    *most, last = (repr(str(option)) for option in known)
    listed = f"{', '.join(most)} or {last}" if most else last
    if not isinstance(value, str):
        raise DtypeError(f"{name} must be {listed}, but is {describe(value)}.")
    close = difflib.get_close_matches(value, known, n=1, cutoff=0.6)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise InvalidInputError(f"{name} must be {listed}, but is {describe(value)}.{hint}")


def refuse_unknown(options: Iterable[str], allowed: Iterable[str], where: str) -> None:
    """Raise `InvalidInputError` at the first option that is not allowed, offering the nearest.

    Args:
        options: Names that came, e.g. the keywords of a call.
        allowed: Names that are known.
        where: What takes them, e.g. `"euclidean"`.

    Example:
        >>> refuse_unknown({"rtoll": 1e-3}, ("rtol", "atol"), "natural")
        Traceback (most recent call last):
        ...
        natgrad.errors.InvalidInputError: natural has no option 'rtoll'. Did you mean 'rtol'?
    """
    known = list(allowed)
    for option in options:
        if option not in known:
            raise InvalidInputError(
                f"{where} has no option {describe(option)}. {nearest(str(option), known)}"
            )


def instance(value: T, name: str, kind: type[Any]) -> T:
    """Return the value if it is an instance of a class; raise `DtypeError` otherwise."""
    if isinstance(value, kind):
        return value
    hint = ""
    if isinstance(value, type) and issubclass(value, kind):
        hint = f"; try {value.__name__}(…)"
    raise DtypeError(f"{name} must be a {kind.__name__}, but is {describe(value)}{hint}.")


def function(value: Any, name: str) -> Any:
    """Return the value if it can be called; raise `DtypeError` otherwise."""
    if not callable(value):
        raise DtypeError(f"{name} must be a function, but is {describe(value)}.")
    return value


def _is_scalar(value: Tensor) -> bool:
    """Return whether a tensor is one real number, which `item` may read."""
    plain = not value.is_nested and is_strided(value) and not value.is_meta
    real = plain and value.ndim == 0 and not value.is_quantized and not value.is_complex()
    return real and str(value.dtype) != "torch.bool"


def _bounds(low: float | None, high: float | None, low_open: bool, high_open: bool) -> str:
    """Return bounds in words, e.g. " of at least 0 and below 1"."""
    parts = []
    if low is not None:
        parts.append(f"{'above' if low_open else 'of at least'} {low:g}")
    if high is not None:
        parts.append(f"{'below' if high_open else 'at most'} {high:g}")
    return f" {' and '.join(parts)}" if parts else ""
