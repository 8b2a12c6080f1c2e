"""A user's tables as numbers, from files or from memory."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from natgrad._checks import dense, describe
from natgrad._checks import path as as_path
from natgrad.data._files import digest_of
from natgrad.data.tables import Columns, Table, as_label, prepare, read_columns
from natgrad.errors import DtypeError, InvalidInputError, ShapeError
from natgrad.experiments._arguments import column, several
from natgrad.experiments.compare.config import Data, Prepared

LABEL = "label"
"""The column of labels of a table in memory."""


Rows = tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]
"""Features, NaN where missing, and the index of each row's class."""


@dataclass(frozen=True, eq=False)
class Loaded:
    """Tables as numbers.

    Attributes:
        train: Training rows.
        test: Test rows, if they are given separately or held out.
        unlabeled: Further inputs, perhaps none.
        notes: Sentences on what was left out of further tables.
    """

    train: Table
    test: Rows | None
    unlabeled: npt.NDArray[np.float64]
    notes: tuple[str, ...] = ()


def gather(
    columns: Columns,
    label: str,
    how: Prepared,
    *,
    classes: Sequence[str] | None = None,
    test: Columns | None = None,
    unlabeled: Columns | None = None,
) -> Loaded:
    """Return columns as tables of numbers.

    Raises:
        InvalidInputError: If they cannot be used; the message says why.
    """
    train = prepare(
        columns,
        label,
        classes=classes,
        categories=how.categories,  # type: ignore[arg-type]
        missing=how.missing,  # type: ignore[arg-type]
        drop=how.drop,
        keep=how.keep,
    )
    notes: list[str] = []
    judged, inputs = None, np.empty((0, len(train.names)))
    if test is not None:
        if how.held_out is not None:
            raise InvalidInputError("give test rows or held_out, not both.")
        inputs_to_judge, labels, out = train.further(test, label)
        judged = (inputs_to_judge, labels)
        if out:
            notes.append(f"{out} test rows lack a feature or a known label and were left out.")
    elif how.held_out is not None:
        train, judged = _hold_out(train, how.held_out, how.seed)
    if unlabeled is not None:
        inputs, _, out = train.further(unlabeled, None)
        if out:
            notes.append(f"{out} unlabeled rows lack a feature and were left out.")
    return Loaded(train, judged, inputs, tuple(notes))


def _hold_out(table: Table, share: float, seed: int) -> tuple[Table, Rows]:
    """Divide a table into training and test rows, with the same share of every class."""
    random = np.random.default_rng([seed, 1])
    held = np.zeros(len(table.labels), dtype=bool)
    for k, name in enumerate(table.classes):
        rows = random.permutation(np.flatnonzero(table.labels == k))
        many = round(share * len(rows))
        if many < 1 or len(rows) - many < 2:
            raise InvalidInputError(
                f"held_out={share:g} takes {many} of {len(rows)} rows of class {name!r}, but at "
                "least 1 row must be held out and 2 must stay."
            )
        held[rows[:many]] = True
    rest = replace(table, x=table.x[~held], labels=table.labels[~held])
    return rest, (table.x[held], table.labels[held])


@lru_cache(maxsize=1)
def load(data: Data, how: Prepared) -> Loaded:
    """Read the tables.

    Raises:
        InvalidInputError: If they cannot be used; the message says why.
    """
    columns = _read(data.path, data.digest)
    test = unlabeled = None
    if data.test_path is not None:
        test = _read(data.test_path, data.test_digest)
    if data.unlabeled_path is not None:
        unlabeled = _read(data.unlabeled_path, data.unlabeled_digest)
    return gather(columns, data.label, how, classes=data.classes, test=test, unlabeled=unlabeled)


def _read(path: str, digest: str | None) -> Columns:
    if digest_of(path) != digest:
        raise InvalidInputError(f"{path} has changed since the run began; start again.")
    return read_columns(path)


def data_of(
    path: str | Path,
    label: str,
    *,
    test: str | Path | None = None,
    unlabeled: str | Path | None = None,
    classes: tuple[str, ...] | None = None,
) -> Data:
    """Return tables in files with their hashes.

    Raises:
        InvalidInputError: If a file is missing.
    """
    path = as_path(path, "the path")
    further = {
        "test_path": None if test is None else str(test),
        "test_digest": None if test is None else digest_of(test),
        "unlabeled_path": None if unlabeled is None else str(unlabeled),
        "unlabeled_digest": None if unlabeled is None else digest_of(unlabeled),
    }
    digest = digest_of(path)
    return Data(path=str(path), digest=digest, label=label, classes=classes, **further)


def in_memory(
    x: Any,
    y: Any,
    how: Prepared,
    *,
    test: Any = None,
    unlabeled: Any = None,
    names: Sequence[str] | None = None,
    classes: Any = None,
) -> tuple[Data, Loaded]:
    """Return arrays, tensors or data frames as tables; the arguments are those of `compare`.

    Raises:
        InvalidInputError: If they cannot be used; the message says why.
    """
    columns = _columns(x, names)
    if classes is not None and (not isinstance(classes, tuple | list) or len(classes) < 2):
        raise DtypeError(f"classes must be a tuple of labels, but is {describe(classes)}.")
    judged = inputs = None
    if test is not None:
        inputs_to_judge, labels = several(test, "test", ("features", "labels"))
        further = _columns(inputs_to_judge, _names_of(inputs_to_judge, columns))
        judged = further | {LABEL: _labels(labels, further)}
    if unlabeled is not None:
        inputs = _columns(unlabeled, _names_of(unlabeled, columns))
    loaded = gather(
        columns | {LABEL: _labels(y, columns)},
        LABEL,
        how,
        classes=classes,
        test=judged,
        unlabeled=inputs,
    )
    return Data(path="", digest=_digest(loaded), label=LABEL), loaded


def _names_of(table: Any, columns: dict[str, Any]) -> tuple[str, ...] | None:
    """Return names for a further table: its own if the first table has any of them."""
    named = {str(name) for name in table.columns} if _is_frame(table) else set()
    return None if named & set(columns) else tuple(columns)


def _is_frame(table: Any) -> bool:
    return not isinstance(table, type) and isinstance(getattr(table, "columns", None), Iterable)


def _columns(x: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns of an array or a data frame."""
    if names is None and _is_frame(x):
        try:
            found = {str(name): x[name].tolist() for name in x.columns}
        except Exception as error:  # it is not a data frame
            raise InvalidInputError(
                "features with columns must be a data frame whose columns have different names."
            ) from error
        if len(found) < len(x.columns) or LABEL in found:
            raise InvalidInputError(
                f"columns of a data frame need different names other than {LABEL!r}: rename one."
            )
        return found
    array = _numbers(x)
    if array.ndim != 2 or 0 in array.shape:
        raise ShapeError(
            f"features must have shape (n, d) with rows and columns, but have {array.shape}."
        )
    return dict(zip(_names(names, array.shape[1]), array.T, strict=True))


def _numbers(x: Any) -> npt.NDArray[np.float64]:
    """Return an array, a tensor or lists as an array of floats."""
    if isinstance(x, Tensor):
        x = dense(x, "features").detach().cpu()
        x = x if x.is_complex() else x.double()
    try:
        array = np.asarray(x)
        if np.iscomplexobj(array):
            raise ValueError("they are complex")
        return np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        reason = str(error).splitlines()[0]
        raise InvalidInputError(f"features must be numbers: {reason}.") from error


def _names(names: Sequence[str] | None, many: int) -> list[str]:
    if names is None:
        return [str(k) for k in range(many)]
    found = column(names, "names")
    texts = all(isinstance(name, str) for name in found)
    if not texts or len(found) != many or len(set(found)) < many or LABEL in found:
        raise InvalidInputError(
            f"{many} different names of features are needed, as texts other than {LABEL!r}, but "
            f"names are {describe(names)}."
        )
    return found


def _labels(y: Any, columns: dict[str, Any]) -> list[str]:
    if isinstance(y, Tensor):
        y = dense(y, "labels").detach().cpu().tolist()
    try:
        marks = [as_label(value) for value in np.asarray(y, dtype=object).ravel().tolist()]
    except (TypeError, ValueError) as error:
        raise DtypeError(f"labels must be a sequence of values, but are {describe(y)}.") from error
    rows = len(next(iter(columns.values())))
    if len(marks) != rows:
        raise ShapeError(f"there are {rows} rows of features, but {len(marks)} labels.")
    return marks


def _digest(loaded: Loaded) -> str:
    hasher = hashlib.sha256("\0".join((*loaded.train.names, *loaded.train.classes)).encode())
    train = loaded.train
    for array in (train.x, train.labels, *(loaded.test or ()), loaded.unlabeled):
        hasher.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()
