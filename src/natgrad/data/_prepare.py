"""Columns as features: categories one-hot, gaps marked, what carries no information left out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from natgrad._checks import choice, describe, instance
from natgrad._named import named
from natgrad.data._columns import Columns, Floats, as_label, hint, numbers, order, require, some
from natgrad.data._encoders import GAP, OTHER, Levels, Number, plain, texts_of
from natgrad.errors import DtypeError, InvalidInputError, LabelError, ShapeError

Codes = npt.NDArray[np.int64]
Categories = Literal["one-hot", "drop"]
Missing = Literal["fill", "flag", "drop"]

MOST_LEVELS = 20
"""Levels of a text that become columns of their own; rarer ones share the column "other"."""
FEWEST_ROWS = 5
"""Rows that a level of a text with many levels needs for a column of its own."""
MOST_CLASSES = 50


@dataclass(frozen=True)
class Step:
    """One thing that was done to a table.

    Attributes:
        column: The column, or "rows".
        done: What was done, in words.
        undo: The option that reverses it, or how to.

    Example:
        >>> print(Step("sex", "one-hot: sex=male", "categories=drop"))
        sex: one-hot: sex=male (undo: categories=drop)
    """

    column: str
    done: str
    undo: str = ""

    def __str__(self) -> str:
        return f"{self.column}: {self.done}" + (f" (undo: {self.undo})" if self.undo else "")


@dataclass(frozen=True, eq=False)
class Table:
    """Features and labels of two or more classes, with what was done to get them.

    Attributes:
        names: Names of the features.
        x: Features, shape `(n, d)`; gaps that are to be filled are NaN.
        labels: Index of each row's class, shape `(n,)`.
        classes: The labels of the classes.
        steps: What was done to the columns and rows.

    Example:
        >>> table = prepare({"age": [30, 31, 50, 60], "ill": ["no", "no", "yes", "yes"]}, "ill")
        >>> table.labels.tolist(), table.classes
        ([0, 0, 1, 1], ('no', 'yes'))
    """

    names: tuple[str, ...]
    x: Floats
    labels: Codes
    classes: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    _plan: tuple[Number | Levels, ...] = field(default=(), repr=False)
    _whole_rows: bool = field(default=False, repr=False)

    def further(self, columns: Columns, label: str | None) -> tuple[Floats, Codes, int]:
        """Return features and labels of further rows, and the number of rows left out.

        Levels that the table does not have count as "other" or as none.

        Args:
            columns: The further table; it must have the columns that this table uses.
            label: The column of labels, or None for rows without labels, whose index is −1.

        Raises:
            InvalidInputError: If a column is missing or holds text instead of numbers, or no row
                is left.
        """
        wanted = [one.column for one in self._plan]
        require(columns, [*wanted, *([label] if label is not None else [])])
        found = {e.name: e.values for one in self._plan for e in one.encode(columns[one.column])}
        x = np.stack([found[name] for name in self.names], axis=1)
        keep = ~np.isnan(x).any(axis=1) if self._whole_rows else np.ones(len(x), dtype=bool)
        labels = np.full(len(x), -1, dtype=np.int64)
        if label is not None:
            index = {name: k for k, name in enumerate(self.classes)}
            labels[:] = [index.get(as_label(value), -1) for value in columns[label]]
            keep &= labels >= 0
        if not keep.any():
            lacks = "" if label is None else f", or a label among {some(self.classes)}"
            raise InvalidInputError(
                f"no row of the further table can be used: each lacks a feature{lacks}."
            )
        return x[keep], labels[keep], int((~keep).sum())


@named
def prepare(
    columns: Columns,
    label: str,
    *,
    classes: Sequence[str] | None = None,
    categories: Categories = "one-hot",
    missing: Missing = "fill",
    drop: Sequence[str] = (),
    keep: Sequence[str] = (),
) -> Table:
    """Return a table's columns as features, and what was done to them.

    Texts become one feature per level, named "column=level"; a missing text is a level. Columns of
    one value, copies of other columns, columns that count the rows, and texts that differ in almost
    every row are left out.

    Args:
        columns: The table.
        label: The column of labels.
        classes: The labels to use, if not all; rows of other classes are left out.
        categories: "one-hot", or "drop" to leave out texts.
        missing: "fill" leaves gaps in numbers as NaN, for `fill_gaps`; "flag" adds a feature that
            says where they were; "drop" leaves out rows with gaps.
        drop: Columns to leave out.
        keep: Columns or features to keep where they would be left out.

    Raises:
        InvalidInputError: If nothing is left to learn from.
        LabelError: If there are not at least two classes.

    Example:
        >>> table = {"age": [3, 5, None, 4], "pet": list("abab"), "ill": ["no", "yes"] * 2}
        >>> found = prepare(table, "ill", keep=["pet=b"])
        >>> found.names, found.x.tolist()
        (('age', 'pet=b'), [[3.0, 0.0], [5.0, 1.0], [nan, 0.0], [4.0, 1.0]])
        >>> for step in found.steps:
        ...     print(step)
        pet: one-hot: pet=b (undo: categories=drop)
        age: 1 gap filled with the median (undo: missing=drop)
    """
    require(columns, [label])
    choice(categories, "categories", get_args(Categories))
    choice(missing, "missing", get_args(Missing))
    drop, keep = (_names_of(names, what) for names, what in ((drop, "drop"), (keep, "keep")))
    require(columns, drop)
    if label in drop:
        raise InvalidInputError(f"drop names {label!r}, which is the column of labels.")
    marks = [as_label(value) for value in columns[label]]
    chosen = _classes(marks, label, classes)
    index = {name: k for k, name in enumerate(chosen)}
    codes = np.array([index.get(mark, -1) for mark in marks], dtype=np.int64)
    steps: list[Step] = []
    used = codes >= 0
    if not used.all():
        steps.append(_rows_step(used, f"no label among {some(chosen)}", "classes"))
    inside = {
        name: [values[k] for k in np.flatnonzero(used).tolist()]
        for name, values in columns.items()
        if name != label and name not in drop
    }
    steps += [Step(name, "left out as asked", "drop") for name in drop]
    plan = _plan(inside, categories, missing, keep, steps)
    found = [e for one in plan for e in one.encode(inside[one.column])]
    if not found:
        raise InvalidInputError(
            f"besides the labels in {label!r} there must be columns to learn from, but there are "
            f"none{': all were left out' if steps else ''}."
        )
    table = Table(
        tuple(e.name for e in found),
        np.stack([e.values for e in found], axis=1),
        codes[used],
        chosen,
        _plan=tuple(plan),
        _whole_rows=missing == "drop",
    )
    table = _with_gaps(table, missing, steps)
    table = _informative(table, keep, steps)
    _check_counts(table, label)
    return replace(table, steps=tuple(steps))


@named
def typical_values(x: Floats) -> Floats:
    """Return the median of each column without its gaps; 0 for a column of gaps.

    Example:
        >>> typical_values(np.array([[1.0, np.nan], [3.0, np.nan], [np.nan, np.nan]]))
        array([2., 0.])
    """
    x = _matrix(x)
    out = np.zeros(x.shape[1])
    for k, column in enumerate(x.T):
        known = column[~np.isnan(column)]
        if len(known):
            out[k] = float(np.median(known))
    return out


@named
def fill_gaps(x: Floats, values: Floats) -> Floats:
    """Return rows with each NaN replaced by the value of its column.

    Example:
        >>> fill_gaps(np.array([[1.0, np.nan]]), np.array([5.0, 7.0]))
        array([[1., 7.]])
    """
    x = _matrix(x)
    numbers = isinstance(values, np.ndarray) and values.dtype.kind in "fiub"
    if not numbers or values.shape != x.shape[1:]:
        raise ShapeError(
            f"there must be an array of {x.shape[1]} numbers, one for each column, but there is "
            f"{describe(values)}."
        )
    return np.where(np.isnan(x), values, x)


def _matrix(x: Any) -> Floats:
    if not isinstance(x, np.ndarray) or x.ndim != 2 or x.dtype.kind not in "fiub":
        raise ShapeError(f"x must be an array of numbers, shape (n, d), but is {describe(x)}.")
    return x.astype(np.float64)


def _names_of(names: Any, what: str) -> tuple[str, ...]:
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, (tuple, list)) or not all(isinstance(name, str) for name in names):
        raise DtypeError(f"{what} must be a tuple of names of columns, but is {describe(names)}.")
    return tuple(names)


def _classes(marks: Sequence[str], label: str, wanted: Any) -> tuple[str, ...]:
    """Return the classes: those asked for, or all labels in order."""
    found = sorted(set(marks) - {""}, key=order)
    if wanted is not None:
        if not isinstance(wanted, (tuple, list)) or len(wanted) < 2:
            raise DtypeError(f"classes must be two or more labels, but are {describe(wanted)}.")
        names = tuple(as_label(name) for name in wanted)
        for name in names:
            if name not in found:
                raise LabelError(f"column {label!r} has no label {name!r}; it has {some(found)}.")
        if len(set(names)) < len(names):
            raise LabelError(f"two different classes are needed, but they are {some(names)}.")
        return names
    if len(found) < 2:
        raise LabelError(
            f"column {label!r} must hold two or more labels, but holds {len(found)}: "
            f"{some(found)}. There is nothing to separate."
        )
    if len(found) > MOST_CLASSES:
        raise LabelError(
            f"column {label!r} holds {len(found)} different labels: {some(found)}. If it is a "
            "quantity, divide it into classes first; else name the labels to use as classes."
        )
    if len(found) == sum(mark != "" for mark in marks) > 2:
        raise LabelError(
            f"column {label!r} has a different label in each row, so no class can be learned. Is "
            "another column meant? If it is a quantity, divide it into classes first."
        )
    return tuple(found)


def _plan(
    columns: Columns, categories: str, missing: str, keep: Sequence[str], steps: list[Step]
) -> list[Number | Levels]:
    """Return how to encode each column that is used."""
    plan: list[Number | Levels] = []
    for name, values in columns.items():
        instance(name, "the name of a column", str)
        found = numbers(plain(values), name)
        if found is not None:
            if name not in keep and _counts_rows(found):
                steps.append(
                    Step(name, "left out: it counts the rows, as an identifier does", _keep(name))
                )
                continue
            plan.append(Number(name, missing == "flag" and bool(np.isnan(found).any())))
        elif categories == "drop":
            steps.append(Step(name, "left out: it holds text", "categories=one-hot"))
        else:
            one = _levels(name, texts_of(values), name in keep, steps)
            if one is not None:
                plan.append(one)
    return plan


def _levels(name: str, texts: Sequence[str], all_of_them: bool, steps: list[Step]) -> Any:
    """Return the levels of a text that become features, or None if it is left out."""
    counts = Counter(texts)
    levels = sorted(counts, key=order)
    if len(levels) > MOST_LEVELS and not all_of_them:
        frequent = [text for text, many in counts.most_common(MOST_LEVELS) if many >= FEWEST_ROWS]
        share = sum(counts[text] for text in frequent) / len(texts)
        if share < 0.1:
            why = f"left out: {len(levels)} different texts in {len(texts)} rows"
            known = [text for text in texts if text != GAP]
            steps.append(Step(name, why + hint(known), _keep(name)))
            return None
        levels = [*sorted(frequent, key=order), OTHER]
        done = f"one-hot: {len(levels) - 1} frequent levels of {len(counts)}, the others together"
        steps.append(Step(name, done, _keep(name)))
        return Levels(name, tuple(levels))
    one = Levels(name, tuple(levels))
    shown = [e.name for e in one.encode([])] if len(levels) == 2 else levels
    what = "one-hot: " + ", ".join(shown[:6]) + (", …" if len(shown) > 6 else "")
    if len(levels) > 1:
        steps.append(Step(name, what, "categories=drop"))
    return one


def _with_gaps(table: Table, missing: str, steps: list[Step]) -> Table:
    """Say what happens to gaps in numbers, and leave out rows if asked."""
    gaps = np.isnan(table.x)
    if missing == "drop":
        whole: npt.NDArray[np.bool_] = ~np.asarray(gaps.any(axis=1))
        if not whole.any():
            raise InvalidInputError(
                "every row has missing values: fill them in, or leave out the columns that lack "
                "most."
            )
        if not whole.all():
            steps.append(_rows_step(whole, "missing values", "missing=fill"))
        return replace(table, x=table.x[whole], labels=table.labels[whole])
    for k in np.flatnonzero(gaps.any(axis=0) & ~gaps.all(axis=0)).tolist():
        many = int(gaps[:, k].sum())
        also = f", and flagged by '{table.names[k]} is missing'" if missing == "flag" else ""
        done = f"{many} gap{'s' if many > 1 else ''} filled with the median{also}"
        steps.append(Step(table.names[k], done, "missing=drop"))
    return table


def _informative(table: Table, keep: Sequence[str], steps: list[Step]) -> Table:
    """Leave out features of one value, and copies of others."""
    x = fill_gaps(table.x, typical_values(table.x))
    asked = np.array([_asked(name, keep) for name in table.names])
    varies = (x != x[0]).any(axis=0)
    use = varies | asked
    for k in np.flatnonzero(~use).tolist():
        many = "no" if np.isnan(table.x[:, k]).all() else "one"
        steps.append(Step(table.names[k], f"left out: it has {many} value", _keep(table.names[k])))
    for k, other in _copies(x, np.flatnonzero(varies)):
        if not asked[k]:
            use[k] = False
            done = f"left out: a copy of {table.names[other]!r} in other units"
            same = np.array_equal(table.x[:, k], table.x[:, other], equal_nan=True)
            done = done.removesuffix(" in other units") if same else done
            steps.append(Step(table.names[k], done, _keep(table.names[k])))
    if not varies.any():
        raise InvalidInputError("every feature is constant: there is nothing to learn from.")
    names = tuple(name for name, kept in zip(table.names, use, strict=True) if kept)
    plan = tuple(one for one in table._plan if {e.name for e in one.encode([])} & set(names))
    return replace(table, names=names, x=table.x[:, use], _plan=plan)


def _copies(x: Floats, columns: Codes) -> list[tuple[int, int]]:
    """Return columns that are a·z + b of an earlier column z, and that column."""
    z = x[:, columns] / np.abs(x[:, columns]).max(axis=0)
    z = z - z.mean(axis=0)
    z /= np.linalg.norm(z, axis=0)
    out: list[tuple[int, int]] = []
    for k in range(1, len(columns)):
        alike = np.abs(z[:, :k].T @ z[:, k]) > 1 - 1e-12
        if alike.any():
            out.append((int(columns[k]), int(columns[int(alike.argmax())])))
    return out


def _asked(name: str, keep: Sequence[str]) -> bool:
    return any(name == one or name.startswith((f"{one}=", f"{one} is missing")) for one in keep)


def _counts_rows(values: Floats) -> bool:
    return len(values) >= 10 and bool((np.diff(values) == 1).all())


def _check_counts(table: Table, label: str) -> None:
    counts = np.bincount(table.labels, minlength=len(table.classes))
    for name, many in zip(table.classes, counts.tolist(), strict=True):
        if many < 2:
            raise LabelError(
                f"class {name!r} of column {label!r} has {many} usable row{'s' * (many != 1)}; at "
                "least 2 are needed. Name the classes to use, without this one."
            )


def _rows_step(used: npt.NDArray[np.bool_], why: str, undo: str) -> Step:
    out = int((~used).sum())
    return Step("rows", f"{out} of {len(used)} left out: {why}", undo)


def _keep(name: str) -> str:
    return f"keep={name}"
