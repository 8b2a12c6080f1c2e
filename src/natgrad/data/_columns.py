"""Columns of a table before they are features: labels, numbers, gaps."""

import difflib
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad._checks import instance
from natgrad._named import named
from natgrad.data._files import is_missing
from natgrad.errors import InvalidInputError

Columns = Mapping[str, Sequence[Any]]
"""A table as read: columns by name, all of one length."""

Floats = npt.NDArray[np.float64]
"""An array of real numbers."""


@named
def as_label(value: Any) -> str:
    """Return the text of a label: whole numbers without a decimal point, missing labels empty.

    Example:
        >>> as_label(1.0), as_label(" yes "), as_label(None), as_label("1.0")
        ('1', 'yes', '', '1')
    """
    if is_missing(value) or (isinstance(value, float) and math.isnan(value)):
        return ""
    text = str(value).strip()
    if text.lstrip("+-").isdecimal():
        return str(int(text))  # a float would not distinguish long numbers
    try:
        number = float(text)
    except ValueError:
        return text
    return str(int(number)) if math.isfinite(number) and number == int(number) else text


def order(mark: str) -> tuple[int, float, str]:
    try:
        return (0, float(mark), mark)
    except ValueError:
        return (1, 0.0, mark)


def some(found: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in found[:8])
    return (shown or "none") + (", …" if len(found) > 8 else "")


def hint(texts: Sequence[str]) -> str:
    """Return a hint for columns of dates, or of numbers with some texts among them."""
    odd = [text for text in texts if order(text)[0] == 1]
    if len(odd) <= 0.2 * len(texts):
        return f"; most are numbers, but not {some(sorted(set(odd)))}: empty those fields"
    if all(map(_is_date, texts)):
        return "; they are dates: to use them, write them as numbers, for example of days"
    return ""


def _is_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def require(columns: Columns, names: Sequence[str]) -> None:
    """Raise an error unless all columns have one length and include the names."""
    instance(columns, "columns", Mapping)
    lengths = {len(c) if hasattr(c, "__len__") else -1 for c in columns.values()}
    if len(lengths) != 1 or -1 in lengths:
        raise InvalidInputError(
            "columns must map names to sequences of one length, but their lengths are "
            f"{sorted(lengths) or 'none'} (−1 for no sequence)."
        )
    for name in names:
        if instance(name, "the name of a column", str) not in columns:
            near = difflib.get_close_matches(name, list(map(str, columns)), n=1)
            hint = (
                f"Did you mean {near[0]!r}?"
                if near
                else f"There are {some(list(map(str, columns)))}."
            )
            raise InvalidInputError(f"there is no column {name!r}. {hint}")


def numbers(values: Sequence[Any], name: str) -> Floats | None:
    """Return a column as numbers, NaN where missing; None if it holds text."""
    out = np.empty(len(values))
    for k, value in enumerate(values):
        if is_missing(value):
            out[k] = math.nan
            continue
        try:
            out[k] = float(value)
        except (TypeError, ValueError):
            return None
        except OverflowError:  # an integer beyond the range of floats
            out[k] = math.inf
    if np.isinf(out).any():
        raise InvalidInputError(f"column {name!r} holds an infinite number.")
    return out
