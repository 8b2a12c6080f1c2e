"""The front door: `natgrad.compare`."""

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from natgrad._checks import dense, describe, refuse_unknown
from natgrad._checks import path as as_path
from natgrad.data._files import digest_of
from natgrad.data.tables import Labelled, as_label, labelled
from natgrad.errors import DtypeError, InvalidInputError, ShapeError
from natgrad.experiments._arguments import column, several
from natgrad.experiments.compare import cells
from natgrad.experiments.compare.experiment import OPTIONS, Compare, compute, experiment, notes
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import in_this_process

_LABEL = "label"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Separators of one table, compared.

    Attributes:
        kind: "separable", "quasi-separable" or "not separable".
        rank: Rank of the inputs, the intercept counted.
        rank_deficient: Whether that is below the number of columns.
        methods: Names of the methods.
        accuracy: Held-out accuracy by method; NaN where the method has no answer.
        interval: Its 95 % confidence interval.
        spread: Its standard deviation over folds; NaN with a test table.
        margin: min yₙ xₙ·β / ‖β‖ of fits to all rows.
        features_used: How many features carry 99 % of ‖β‖².
        angles: Degrees between the separators, shape `(methods, methods)`.
        coefficients: β/‖β‖ of the fits to all rows, shape `(methods, features)`.
        features: Names of the columns of `coefficients`.
        notes: Sentences: the kind of data, what was left out, what the numbers mean.
    """

    kind: str
    rank: int
    rank_deficient: bool
    methods: tuple[str, ...]
    accuracy: dict[str, float]
    interval: dict[str, tuple[float, float]]
    spread: dict[str, float]
    margin: dict[str, float]
    features_used: dict[str, float]
    angles: npt.NDArray[np.float64]
    coefficients: npt.NDArray[np.float64]
    features: tuple[str, ...]
    notes: tuple[str, ...]

    def lines(self) -> list[str]:
        """Return a summary in sentences and a table, for people."""
        reference = self.methods[0]
        head = f"{'':<15} accuracy (95 % interval)     margin    features   angle to {reference}"
        rows = []
        for k, name in enumerate(self.methods):
            if np.isnan(self.accuracy[name]):
                rows.append(f"{name:<15} none: the data are {self.kind}")
                continue
            low, high = self.interval[name]
            text = f"{100 * self.accuracy[name]:5.1f} % ({100 * low:.1f}–{100 * high:.1f})"
            rows.append(
                f"{name:<15} {text:<25} {self.margin[name]:>9.3g} {self.features_used[name]:>8.0f}"
                f" {self.angles[k, 0]:>9.1f}°"
            )
        return [*self.notes, "", head, *rows]

    def to_json(self) -> dict[str, Any]:
        """Return the numbers by method, and the rest, for machines; NaN becomes None."""
        by_method = {
            name: {
                "accuracy": _known(self.accuracy[name]),
                "interval": [_known(end) for end in self.interval[name]],
                "spread": _known(self.spread[name]),
                "margin": _known(self.margin[name]),
                "features_used": _known(self.features_used[name]),
                "angles": [_known(angle) for angle in self.angles[k].tolist()],
                "coefficients": [_known(value) for value in self.coefficients[k].tolist()],
            }
            for k, name in enumerate(self.methods)
        }
        return {
            "kind": self.kind,
            "rank": self.rank,
            "rank_deficient": self.rank_deficient,
            "features": list(self.features),
            "methods": by_method,
        }

    def __str__(self) -> str:
        return "\n".join(self.lines())


def compare(
    x: Any,
    y: Sequence[Any] | npt.ArrayLike,
    *,
    test: tuple[Any, Any] | None = None,
    unlabelled: Any = None,
    names: Sequence[str] | None = None,
    classes: tuple[str, str] | None = None,
    **options: Any,
) -> Comparison:
    """Compare what EGD at each depth, NGD and their limits make of data of two classes.

    Data of every kind are taken: separable, quasi-separable, not separable, rank-deficient; the
    answer says which.

    Args:
        x: Features, `(n, d)`: an array, a tensor or a data frame. Rows with NaN are left out.
        y: Labels, any two values.
        test: Features and labels to judge by; without them, cross-validation.
        unlabelled: Further inputs over which the population Fisher is averaged.
        names: Names of the features; default those of a data frame, or numbers.
        classes: Two labels to tell apart, if there are more; the second counts as +1.
        options: Fields of `natgrad.experiments.compare.experiment.Compare`: `depths`, `until`,
            `natural_until`, `scale`, `standardise`, `intercept`, `folds`, `seed`.

    Raises:
        InvalidInputError: If there is nothing to compare; the message says why.

    Example:
        >>> x = np.array([[2.0, 1.0], [1.0, 2.0], [3.0, 1.5], [-1.0, -2.0], [-2.0, 0.5], [-1, -1]])
        >>> found = compare(x, ["a", "a", "a", "b", "b", "b"], depths=(1, 2), folds=2)
        >>> found.kind, found.accuracy["EGD L=1"]
        ('separable', 1.0)
    """
    refuse_unknown(options, OPTIONS, "compare")
    columns = _columns(x, names)
    if classes is not None:
        first, second = several(classes, "classes", ("a label", "another"))
        classes = (first, second)
    table = labelled(columns | {_LABEL: _labels(y, columns)}, _LABEL, classes=classes)
    judged = None
    if test is not None:
        inputs_to_judge, labels = several(test, "test", ("features", "labels"))
        further = _columns(inputs_to_judge, _names_of(inputs_to_judge, columns))
        judged = further | {_LABEL: _labels(labels, further)}
    inputs = None
    if unlabelled is not None:
        inputs = _columns(unlabelled, _names_of(unlabelled, columns))
    loaded = cells.gather(table, judged, inputs, _LABEL)
    data = cells.Data(path="", digest=_digest(loaded), label=_LABEL)
    config = experiment(data, **options).presets["quick"]
    return comparison(config, compute(config, in_this_process, loaded), loaded)


def data_of(
    path: str | Path,
    label: str,
    *,
    test: str | Path | None = None,
    unlabelled: str | Path | None = None,
    classes: tuple[str, str] | None = None,
) -> cells.Data:
    """Return tables in files as an experiment takes them, hashed.

    Raises:
        InvalidInputError: If a file is missing.
    """
    path = as_path(path, "the path")
    further = {
        "test_path": None if test is None else str(test),
        "test_digest": None if test is None else digest_of(test),
        "unlabelled_path": None if unlabelled is None else str(unlabelled),
        "unlabelled_digest": None if unlabelled is None else digest_of(unlabelled),
    }
    digest = digest_of(path)
    return cells.Data(path=str(path), digest=digest, label=label, classes=classes, **further)


def comparison(config: Compare, arrays: Arrays, given: cells.Loaded | None = None) -> Comparison:
    """Return what the arrays of an experiment say; `given` are its tables, if not in files."""
    methods = tuple(arrays.coordinates["method"])

    def by_method(values: npt.ArrayLike) -> dict[str, float]:
        return dict(zip(methods, np.asarray(values, dtype=np.float64).tolist(), strict=True))

    low, high = arrays["accuracy_low"].tolist(), arrays["accuracy_high"].tolist()
    spread = np.full(len(methods), np.nan)
    if "fold_accuracy" in arrays:
        spread = arrays["fold_accuracy"].std(axis=1, ddof=1)
    features = tuple(arrays.coordinates["feature"])
    return Comparison(
        kind=cells.KINDS[int(arrays["kind"])],
        rank=int(arrays["rank"]),
        rank_deficient=int(arrays["rank"]) < len(features),
        methods=methods,
        accuracy=by_method(arrays["accuracy"]),
        interval=dict(zip(methods, zip(low, high, strict=True), strict=True)),
        spread=by_method(spread),
        margin=by_method(arrays["margin"]),
        features_used=by_method(arrays["features_used"]),
        angles=arrays["angle"],
        coefficients=arrays["coefficients"],
        features=features,
        notes=tuple(notes(config, arrays, given)),
    )


def _names_of(table: Any, columns: dict[str, Any]) -> tuple[str, ...] | None:
    """Return names for a further table: a data frame's own where the first one has them too."""
    named = {str(name) for name in table.columns} if _is_frame(table) else set()
    return None if named & set(columns) else tuple(columns)


def _is_frame(table: Any) -> bool:
    return not isinstance(table, type) and isinstance(getattr(table, "columns", None), Iterable)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _columns(x: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return an array or a data frame by columns."""
    if names is None and _is_frame(x):
        try:
            # As in a file: columns of text are left out later, with a note.
            found = {str(name): x[name].tolist() for name in x.columns}
        except Exception as error:  # whatever it is, it is no data frame
            raise InvalidInputError(
                "features with columns must be a data frame whose columns have different names."
            ) from error
        if len(found) < len(x.columns) or _LABEL in found:
            raise InvalidInputError(
                f"columns of a data frame need different names, none of them {_LABEL!r}: rename "
                "one."
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
    if not texts or len(found) != many or len(set(found)) < many or _LABEL in found:
        raise InvalidInputError(
            f"{many} different names of features are needed, texts, none of them {_LABEL!r}, but "
            f"{describe(names)} came."
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


def _digest(loaded: cells.Loaded) -> str:
    hasher = hashlib.sha256()
    train: Labelled = loaded.train
    for array in (train.x, train.y, *(loaded.test or ()), loaded.unlabelled):
        hasher.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return hasher.hexdigest()
