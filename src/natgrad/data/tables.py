"""Tables with a column of labels, read from CSV or Parquet, and their columns as features."""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad._checks import describe, instance
from natgrad._named import named
from natgrad.data._columns import Columns, Floats, as_label, numbers, order, require, some
from natgrad.data._files import csv_lines, existing, is_parquet, parquet_table
from natgrad.data._prepare import Step, Table, fill_gaps, prepare, typical_values
from natgrad.errors import DtypeError, InvalidInputError, LabelError

__all__ = [
    "Columns",
    "Floats",
    "Labeled",
    "Step",
    "Table",
    "as_label",
    "fill_gaps",
    "labeled",
    "matching",
    "prepare",
    "read_columns",
    "typical_values",
]


def __getattr__(name: str) -> Any:
    """Return what had another name before version 0.2."""
    if name not in ("Labelled", "labelled"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = name.replace("ll", "l")
    warnings.warn(
        f"{__name__}.{name} is now {__name__}.{new}; version 0.3 removes the old name.",
        DeprecationWarning,
        stacklevel=2,
    )
    return globals()[new]


@dataclass(frozen=True, eq=False)
class Labeled:
    """Features and labels of two classes.

    Attributes:
        names: Names of the features.
        x: Features, shape `(n, d)`.
        y: −1 for the first class, +1 for the second, shape `(n,)`.
        classes: The labels of the two classes.
        notes: Sentences on what was left out.

    Example:
        >>> table = labeled({"age": [30, 31, 50, 60], "ill": ["no", "no", "yes", "yes"]}, "ill")
        >>> table.y.tolist()
        [-1.0, -1.0, 1.0, 1.0]
    """

    names: tuple[str, ...]
    x: Floats
    y: Floats
    classes: tuple[str, str]
    notes: tuple[str, ...] = ()


@named
def read_columns(path: str | Path) -> Columns:
    r"""Return all columns of a CSV file with a header, or of a Parquet file.

    CSV may be separated by comma, semicolon or tab, and is read without pandas. Parquet needs
    pyarrow, which the extra `natgrad[tables]` installs.

    Raises:
        InvalidInputError: If the file cannot be read in this way.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("age;ill\n30;no\n50;yes\n")
        ...     file.flush()
        ...     read_columns(file.name)
        {'age': ['30', '50'], 'ill': ['no', 'yes']}
    """
    path = existing(path)
    if is_parquet(path):
        table = parquet_table(path)
        _refuse_twins(table.column_names, path)
        return {name: table.column(name).to_pylist() for name in table.column_names}
    with csv_lines(path) as lines:
        return _by_column(list(lines), path)


def _by_column(lines: list[list[str]], path: Path) -> Columns:
    if len(lines) < 2:
        raise InvalidInputError(f"{path} must have a header and at least one more line.")
    header = [name.strip() for name in lines[0]]
    _refuse_twins(header, path)
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(header):
            raise InvalidInputError(
                f"{path}, line {number}: {len(line)} fields where the header has {len(header)}."
            )
    return dict(zip(header, (list(c) for c in zip(*lines[1:], strict=True)), strict=True))


def _refuse_twins(names: Sequence[str], path: Path) -> None:
    twins = sorted({name for name in names if names.count(name) > 1})
    if twins:
        raise InvalidInputError(f"{path} has more than one column {twins[0]!r}; rename one.")


@named
def labeled(columns: Columns, label: str, *, classes: tuple[str, str] | None = None) -> Labeled:
    """Return features and labels; rows and columns that cannot be used are left out, with notes.

    Args:
        columns: The table.
        label: The column of labels.
        classes: The two labels to keep; rows of other classes are left out.

    Raises:
        InvalidInputError: If nothing is left to learn from.
        LabelError: If there are not two classes.

    Example:
        >>> table = {"age": list("35246?"), "name": list("abcdef"), "ill": ["no", "yes"] * 3}
        >>> found = labeled(table, "ill")
        >>> found.x[:, 0].tolist(), found.y.tolist(), found.classes
        ([3.0, 5.0, 2.0, 4.0, 6.0], [-1.0, 1.0, -1.0, 1.0, -1.0], ('no', 'yes'))
        >>> for note in found.notes:
        ...     print(note)
        Column 'name' holds text and was left out; encode it as numbers to use it.
        1 of 6 rows has missing values and was left out.
    """
    require(columns, [label])
    if classes is not None and not (isinstance(classes, (tuple, list)) and len(classes) == 2):
        raise DtypeError(f"classes must be a pair of labels, but are {describe(classes)}.")
    marks = [as_label(value) for value in columns[label]]
    chosen = _two(marks, label, classes)
    notes: list[str] = []
    keep = np.array([mark in chosen for mark in marks])
    _note_rows(notes, keep, f"no label {chosen[0]!r} or {chosen[1]!r}")
    names, x = _features(columns, label, notes)
    whole = ~np.isnan(x).any(axis=1)
    _note_rows(notes, whole | ~keep, "missing values")
    keep &= whole
    names, x = _varying(names, x[keep], notes)
    y = np.array([1.0 if mark == chosen[1] else -1.0 for mark in marks])[keep]
    for value, name in ((-1, chosen[0]), (1, chosen[1])):
        if int((y == value).sum()) < 2:
            many = int((y == value).sum())
            raise LabelError(
                f"class {name!r} of column {label!r} has {many} usable row{'s' * (many != 1)}; "
                "at least 2 are needed."
            )
    return Labeled(names, x, y, chosen, tuple(notes))


@named
def matching(columns: Columns, like: Labeled, label: str | None) -> tuple[Floats, Floats, int]:
    """Return features and labels of a further table, and the number of rows left out.

    Args:
        columns: The table; it must have all features of `like`.
        like: The first table, whose features and classes it must match.
        label: The column of labels, or None for unlabeled rows (whose labels are then NaN).

    Raises:
        InvalidInputError: If a column is missing or holds text, or no row is left.

    Example:
        >>> like = labeled({"age": ["30", "50", "40", "60"], "ill": ["no", "yes"] * 2}, "ill")
        >>> matching({"age": ["35", ""]}, like, None)
        (array([[35.]]), array([nan]), 1)
    """
    instance(like, "like", Labeled)
    require(columns, [*like.names, *([label] if label is not None else [])])
    values = [numbers(columns[name], name) for name in like.names]
    for name, value in zip(like.names, values, strict=True):
        if value is None:
            raise InvalidInputError(f"column {name!r} holds text here, but numbers in the data.")
    x = np.stack([value for value in values if value is not None], axis=1)
    keep = ~np.isnan(x).any(axis=1)
    y = np.full(len(x), math.nan)
    if label is not None:
        marks = [as_label(value) for value in columns[label]]
        y[:] = [{like.classes[0]: -1.0, like.classes[1]: 1.0}.get(m, math.nan) for m in marks]
        keep &= ~np.isnan(y)
    if not keep.any():
        first, second = like.classes
        lacks = "" if label is None else f", or a label {first!r} or {second!r}"
        raise InvalidInputError(
            f"no row of the further table can be used: each lacks a feature{lacks}."
        )
    return x[keep], y[keep], int((~keep).sum())


def _two(marks: list[str], label: str, classes: tuple[str, str] | None) -> tuple[str, str]:
    """Return the two classes, the smaller first unless they were given."""
    found = sorted(set(marks) - {""}, key=order)
    if classes is not None:
        wanted = (as_label(classes[0]), as_label(classes[1]))
        for name in wanted:
            if name not in found:
                raise LabelError(f"column {label!r} has no label {name!r}; it has {some(found)}.")
        if wanted[0] == wanted[1]:
            raise LabelError(f"two different classes are needed, but both are {wanted[0]!r}.")
        return wanted
    if len(found) != 2:
        hint = "Name two of them as classes." if len(found) > 2 else "There is nothing to separate."
        raise LabelError(
            f"column {label!r} must hold two labels, but holds {len(found)}: {some(found)}. {hint}"
        )
    return found[0], found[1]


def _features(columns: Columns, label: str, notes: list[str]) -> tuple[tuple[str, ...], Floats]:
    found = {name: numbers(columns[name], name) for name in columns if name != label}
    texts = [name for name, value in found.items() if value is None]
    _note_columns(notes, texts, "text", "; encode it as numbers to use it")
    kept = {name: value for name, value in found.items() if value is not None}
    if not kept:
        raise InvalidInputError(
            f"besides the labels in {label!r} there must be columns of numbers, but there are none."
        )
    return tuple(kept), np.stack(list(kept.values()), axis=1)


def _varying(names: tuple[str, ...], x: Floats, notes: list[str]) -> tuple[tuple[str, ...], Floats]:
    if len(x) == 0:
        raise InvalidInputError(
            "every row has missing values: fill them in, or leave out the columns that lack most."
        )
    varies = (x != x[0]).any(axis=0)
    _note_columns(notes, [n for n, v in zip(names, varies, strict=True) if not v], "one value", "")
    if not varies.any():
        raise InvalidInputError("every feature is constant: there is nothing to learn from.")
    return tuple(n for n, v in zip(names, varies, strict=True) if v), x[:, varies]


def _note_columns(notes: list[str], names: Sequence[str], what: str, advice: str) -> None:
    if len(names) == 1:
        notes.append(f"Column {names[0]!r} holds {what} and was left out{advice}.")
    elif names:
        many = advice.replace(" it", " them")
        notes.append(f"{len(names)} columns hold {what} and were left out{many}: {some(names)}.")


def _note_rows(notes: list[str], keep: npt.NDArray[np.bool_], what: str) -> None:
    out = int((~keep).sum())
    if out:
        has, was = ("has", "was") if out == 1 else ("have", "were")
        notes.append(f"{out} of {len(keep)} rows {has} {what} and {was} left out.")
