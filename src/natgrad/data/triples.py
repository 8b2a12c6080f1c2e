"""Incomplete matrices as tables of (row, column, value), read from CSV or Parquet."""

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad._checks import dense, describe, instance
from natgrad._named import named
from natgrad.data._files import csv_lines, existing, is_missing, is_parquet, parquet_table
from natgrad.errors import DtypeError, InvalidInputError

__all__ = ["Table", "Triples", "index_table", "make_table", "read_table", "within"]

_NAMES = ("row", "column", "value")


@dataclass(frozen=True, eq=False)
class Table:
    """Three columns as read; each label is stored once, in order of appearance.

    Attributes:
        rows: Labels of rows.
        columns: Labels of columns.
        row: Index of each entry's row among the labels.
        column: Index of its column.
        values: Its value, NaN where missing.

    Example:
        >>> make_table(["ann", "bob"], [1, 1], [1.0, 2.0]).columns
        ('1',)
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row: npt.NDArray[np.int64]
    column: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Triples:
    """Observed entries of a matrix whose rows and columns have labels.

    Attributes:
        rows: Labels of the rows.
        columns: Labels of the columns.
        positions: Row and column of each entry, each pair once, shape `(n, 2)`.
        values: Values, float64, shape `(n,)`.
        notes: Sentences on what was left out or averaged.

    Example:
        >>> index_table(make_table(["ann", "bob"], [1, 1], [1.0, 2.0])).shape
        (2, 1)
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    positions: Tensor
    values: Tensor
    notes: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of rows and columns."""
        return len(self.rows), len(self.columns)


@named
def make_table(rows: Iterable[Any], columns: Iterable[Any], values: Iterable[Any]) -> Table:
    """Return a table from three sequences of equal length; labels are converted to text.

    Raises:
        InvalidInputError: If lengths differ, or a value is infinite or not a number.

    Example:
        >>> table = make_table(["ann", "ann", "bob"], [1, 2, 1], [1.0, 2.0, None])
        >>> table.rows, table.row.tolist(), table.values.tolist()
        (('ann', 'bob'), [0, 0, 1], [1.0, 2.0, nan])
    """
    for name, given in (("rows", rows), ("columns", columns), ("values", values)):
        if not isinstance(given, Iterable):
            raise DtypeError(f"{name} must be a sequence, but is {describe(given)}.")
        if isinstance(given, Tensor):
            dense(given, name)
    try:
        return _collect(zip(rows, columns, values, strict=True), (0, 1, 2), 1)
    except ValueError as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(
            "there must be one row and one column for each value, but the lengths differ."
        ) from error


@named
def index_table(table: Table) -> Triples:
    """Return the entries of a table by position.

    Missing values are left out and repeated entries averaged; the notes say so.

    Raises:
        InvalidInputError: If no value is left.

    Example:
        >>> triples = index_table(make_table(["a", "a", "b"], ["x", "x", "y"], [1.0, 3.0, 5.0]))
        >>> triples.values.tolist(), triples.notes
        ([2.0, 5.0], ('1 entry came more than once; its values were averaged.',))
    """
    kept = ~np.isnan(instance(table, "table", Table).values)
    if not kept.any():
        raise InvalidInputError("there are no values: the table is empty, or all are missing.")
    rows, row = _used(table.rows, table.row[kept])
    columns, column = _used(table.columns, table.column[kept])
    flat, where, many = np.unique(
        row * len(columns) + column, return_inverse=True, return_counts=True
    )
    means = np.bincount(where, weights=table.values[kept]) / many
    missing, repeated = int((~kept).sum()), int((many > 1).sum())
    notes = []
    if missing:
        notes.append(f"{missing} of {len(kept)} values are missing and were left out.")
    if repeated:
        entries, its = ("entry", "its") if repeated == 1 else ("entries", "their")
        notes.append(f"{repeated} {entries} came more than once; {its} values were averaged.")
    positions = np.stack([flat // len(columns), flat % len(columns)], axis=1)
    values = torch.from_numpy(means)
    return Triples(rows, columns, torch.from_numpy(positions), values, tuple(notes))


def _used(
    labels: tuple[str, ...], index: npt.NDArray[np.int64]
) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """Return the labels that occur, and the index among them.

    They stay in order of appearance, unless all are whole numbers, which are sorted.
    """
    used, again = np.unique(index, return_inverse=True)
    found = [labels[k] for k in used]
    order = np.arange(len(found))
    if all(label.lstrip("-").isdecimal() for label in found):
        order = np.argsort(np.array([int(label) for label in found], dtype=object), kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return tuple(found[k] for k in order), place[again].astype(np.int64)


@named
def within(table: Table, triples: Triples) -> tuple[Tensor, Tensor, int]:
    """Return positions and values of a second table in a matrix, and how many lie outside it.

    Raises:
        InvalidInputError: If none lies in rows and columns of the matrix.

    Example:
        >>> known = index_table(make_table(["a", "b"], ["x", "y"], [1.0, 2.0]))
        >>> positions, values, outside = within(make_table("ac", "yy", [3.0, 4.0]), known)
        >>> positions.tolist(), values.tolist(), outside
        ([[0, 1]], [3.0], 1)
    """
    instance(table, "table", Table)
    instance(triples, "triples", Triples)
    row = _lookup(table.rows, triples.rows)[table.row]
    column = _lookup(table.columns, triples.columns)[table.column]
    present = ~np.isnan(table.values)
    inside = present & (row >= 0) & (column >= 0)
    if not inside.any():
        raise InvalidInputError(
            f"none of the {int(present.sum())} test entries lies in a row and a column of the "
            "data: both must use the same labels."
        )
    positions = np.stack([row[inside], column[inside]], axis=1)
    values = torch.from_numpy(table.values[inside])
    return torch.from_numpy(positions), values, int(present.sum() - inside.sum())


def _lookup(labels: tuple[str, ...], known: tuple[str, ...]) -> npt.NDArray[np.int64]:
    where = {label: k for k, label in enumerate(known)}
    return np.array([where.get(label, -1) for label in labels], dtype=np.int64)


@named
def read_table(path: str | Path, names: Sequence[str] | None = None) -> Table:
    r"""Return three columns of a CSV or Parquet file.

    CSV may be separated by comma, semicolon or tab, and may have a header: a first line whose third
    field is not a number. Without `names` the columns called row, column and value are read, or
    else the first three. The file is read line by line and stored as numbers.

    Args:
        path: The file; `.parquet` or `.pq` is read with pyarrow, all else as CSV.
        names: Names of the columns for row, column and value.

    Raises:
        InvalidInputError: If the file cannot be read in this way.

    Example:
        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        ...     _ = file.write("user;film;stars\nann;Alien;5\nbob;Brazil;4.5\n")
        ...     file.flush()
        ...     read_table(file.name).values
        array([5. , 4.5])
    """
    if names is not None and not (isinstance(names, (tuple, list)) and len(names) == 3):
        raise DtypeError(f"names must be three names of columns, but are {describe(names)}.")
    path = existing(path)
    opened = _parquet if is_parquet(path) else _csv
    with opened(path) as (header, lines):
        return _collect(lines, _choose(header, names, path), 1 if header is None else 2)


def _collect(lines: Iterable[Sequence[Any]], which: tuple[int, int, int], first: int) -> Table:
    rows: dict[str, int] = {}
    columns: dict[str, int] = {}
    row, column, values = array("q"), array("q"), array("d")
    a, b, c = which
    for number, line in enumerate(lines, first):
        labels = _label(line[a]), _label(line[b])
        row.append(rows.setdefault(labels[0], len(rows)))
        column.append(columns.setdefault(labels[1], len(columns)))
        # An entry without a row or a column counts as missing.
        values.append(_number(line[c], number) if all(labels) else math.nan)
    return Table(
        tuple(rows),
        tuple(columns),
        np.array(row, dtype=np.int64),
        np.array(column, dtype=np.int64),
        np.array(values, dtype=np.float64),
    )


def _label(value: Any) -> str:
    return "" if value is None else str(value).strip()


Opened = tuple[list[str] | None, Iterable[Sequence[Any]]]


@contextmanager
def _csv(path: Path) -> Iterator[Opened]:
    with csv_lines(path) as lines:
        first = next(lines, None)
        if first is None:
            raise InvalidInputError(f"{path} is empty.")
        if len(first) < 3:
            raise InvalidInputError(
                f"{path} must have at least three columns, row, column and value, separated by "
                f"comma, semicolon or tab; its first line is {' '.join(first)[:60]!r}."
            )
        if _is_number(first[2]):
            yield None, _whole(chain([first], lines), len(first), path)
        else:
            yield first, _whole(lines, len(first), path)


def _whole(lines: Iterable[list[str]], width: int, path: Path) -> Iterator[list[str]]:
    for line in lines:
        if len(line) != width:
            raise InvalidInputError(
                f"{path}: a line has {len(line)} fields where the first has {width}: {line[:4]!r}."
            )
        yield line


@contextmanager
def _parquet(path: Path) -> Iterator[Opened]:
    table = parquet_table(path)
    batches = (
        zip(*(column.to_pylist() for column in batch.columns), strict=True)
        for batch in table.to_batches(max_chunksize=65_536)
    )
    yield list(table.column_names), chain.from_iterable(batches)


def _choose(
    header: list[str] | None, names: Sequence[str] | None, path: Path
) -> tuple[int, int, int]:
    """Return the indices of the three columns."""
    if names is None:
        found = [name.strip().lower() for name in header or ()]
        if all(name in found for name in _NAMES):
            return found.index("row"), found.index("column"), found.index("value")
        if header is not None and len(header) < 3:
            raise InvalidInputError(f"{path} must have at least three columns, but has {header}.")
        return 0, 1, 2
    if header is None:
        raise InvalidInputError(f"{path} has no header, so its columns cannot be named.")
    for name in names:
        if instance(name, "the name of a column", str) not in header:
            raise InvalidInputError(
                f"{path} has no column {name!r}; it has {', '.join(map(repr, header))}."
            )
    a, b, c = (header.index(name) for name in names)
    return a, b, c


def _is_number(text: str) -> bool:
    if is_missing(text):
        return True
    try:
        float(text)
    except ValueError:
        return False
    return True


def _number(value: Any, line: int) -> float:
    """Return a value as a float, NaN if it is missing."""
    if is_missing(value):
        return math.nan
    try:
        number = float(value)
    except OverflowError:  # an integer beyond the range of floats
        number = math.inf
    except (TypeError, ValueError, RuntimeError) as error:  # the last from tensors
        raise InvalidInputError(
            f"value {describe(value)} in line {line} is not a number."
        ) from error
    if math.isinf(number):
        raise InvalidInputError(f"value {describe(value)} in line {line} is infinite.")
    return number
