"""Compare separators: fit every method to every part of a table, and judge the fits."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad._checks import refuse_unknown
from natgrad._renamed import renamed
from natgrad.errors import InvalidInputError
from natgrad.experiments.compare import _cells as cells
from natgrad.experiments.compare._tables import Loaded, data_of, in_memory, load
from natgrad.experiments.compare.config import OPTIONS, RENAMED, Compare, Data
from natgrad.experiments.compare.result import Comparison, comparison, notes
from natgrad.fits import methods
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS, Experiment, Sweep, in_this_process

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["compare", "compute", "data_of", "experiment"]

_Z = 1.959963984540054  # of a 95 % interval


@renamed(**RENAMED)
def compare(
    x: Any,
    y: Sequence[Any] | npt.ArrayLike,
    *,
    test: tuple[Any, Any] | None = None,
    unlabeled: Any = None,
    names: Sequence[str] | None = None,
    classes: tuple[str, str] | None = None,
    **options: Any,
) -> Comparison:
    """Compare the separators that EGD at each depth, NGD and their limits find.

    The data have two classes. They may be separable, quasi-separable, not separable or
    rank-deficient; the result says which.

    Args:
        x: Features, `(n, d)`: an array, a tensor or a data frame. Rows with NaN are left out.
        y: Labels, any two values.
        test: Test features and labels; without them, accuracy is from cross-validation.
        unlabeled: Further inputs over which the population Fisher is averaged.
        names: Names of the features; by default those of a data frame, or numbers.
        classes: The two labels to compare, if there are more; the second counts as +1.
        options: Fields of `natgrad.experiments.compare.config.Choices`: `depths`, `until`,
            `natural_until`, `scale`, `standardize`, `intercept`, `folds`, `seed`.

    Raises:
        InvalidInputError: If there is nothing to compare; the message says why.

    Example:
        >>> x = np.array([[2.0, 1.0], [1.0, 2.0], [3.0, 1.5], [-1.0, -2.0], [-2.0, 0.5], [-1, -1]])
        >>> found = compare(x, ["a", "a", "a", "b", "b", "b"], depths=(1, 2), folds=2)
        >>> found.kind, found.accuracy["EGD L=1"]
        ('separable', 1.0)
    """
    refuse_unknown(options, OPTIONS, "compare")
    data, loaded = in_memory(x, y, test=test, unlabeled=unlabeled, names=names, classes=classes)
    config = experiment(data, **options).presets["quick"]
    return comparison(config, compute(config, in_this_process, loaded), loaded)


def experiment(data: Data, **options: Any) -> Experiment[Compare]:
    """Return the experiment for a table.

    Raises:
        InvalidInputError: If there is no such option.
    """
    stem = Path(data.path).stem if data.path else "table"
    refuse_unknown(options, OPTIONS, "compare")
    config = Compare(data=data, **options)
    return Experiment(
        name=f"compare/{stem}",
        title=f"Separators of {stem}: EGD at each depth, NGD, and their limits",
        source="natgrad compare",
        presets=dict.fromkeys(PRESETS, config),
        minutes=dict.fromkeys(PRESETS, 1.0),
        compute=compute,
        claims=claims,
        draw=draw,
        departures=notes,
    )


def compute(config: Compare, sweep: Sweep, given: Loaded | None = None) -> Arrays:
    """Return accuracies, margins, angles and coefficients of all methods.

    Args:
        config: How to compare.
        sweep: Runs the cells.
        given: The tables, if they are in memory; else they are read from the config's files.
    """
    loaded = given or load(config.data)  # refuse bad tables here, not in a worker
    splits = _splits(config, loaded)
    names = methods(config.depths)
    asked = {
        (fold, name): Cell(
            cells.separator,
            cells.Fit(
                data=config.data,
                how=config.how,
                method=name,
                fold=fold,
                until=config.until,
                natural_until=config.natural_until,
                scale=config.scale,
            ),
            f"{name}, {_part(fold)}",
            given,
        )
        for fold in (None, *splits)
        for name in names
    }
    which = cells.Kind(data=config.data, how=config.how)
    question = Cell(cells.kind, which, "kind of data", given)
    answer, *fits = sweep([question, *asked.values()], "fits")
    found = dict(zip(asked, fits, strict=True))
    features = [*(["intercept"] if config.intercept else []), *loaded.train.names]
    parts = [_part(fold) for fold in (None, *splits)]
    folds = list(range(len(splits)))
    arrays = Arrays(method=names, other=names, feature=features, fold=folds, part=parts)
    _judge(arrays, found, names, splits)
    _describe(arrays, found, names, config.intercept)
    for name, value in answer.items():
        arrays.add(name, value)
    arrays.add("rows", len(loaded.train.y))
    early = [[found[fold, name]["early"] for fold in (None, *splits)] for name in names]
    arrays.add("ended_early", early, "method", "part")
    return arrays


def _part(fold: int | None) -> str:
    return "all rows" if fold is None else f"fold {fold + 1}"


def _splits(config: Compare, loaded: Loaded) -> list[int]:
    if loaded.test is not None:
        return []
    fewest = min(int((loaded.train.y == value).sum()) for value in (-1, 1))
    if fewest < config.folds:
        raise InvalidInputError(
            f"{config.folds} folds need as many rows of each class, but one has {fewest}. Give "
            "fewer folds, or a test table."
        )
    return list(range(config.folds))


def _judge(
    arrays: Arrays, found: dict[Any, Result], names: Sequence[str], splits: Sequence[int]
) -> None:
    """Add accuracy on held-out rows, with its interval, and its spread over folds."""
    held: Sequence[int | None] = splits or [None]
    rights = [[found[fold, name]["right"] for fold in held] for name in names]
    pooled = [np.concatenate(right) for right in rights]
    accuracy = np.array([right.mean() for right in pooled])
    arrays.add("accuracy", accuracy, "method")
    low, high = wilson(accuracy, len(pooled[0]))
    arrays.add("accuracy_low", low, "method")
    arrays.add("accuracy_high", high, "method")
    arrays.add("judged_rows", len(pooled[0]))
    if splits:
        by_fold = np.array([[right.mean() for right in folds] for folds in rights])
        arrays.add("fold_accuracy", by_fold, "method", "fold")


def wilson(share: npt.ArrayLike, n: int) -> tuple[Any, Any]:
    """Return the 95 % confidence interval of a share of n (Wilson 1927).

    Example:
        >>> low, high = wilson(1.0, 20)
        >>> round(float(low), 3), round(float(high), 3)
        (0.839, 1.0)
    """
    p, z = np.asarray(share, dtype=np.float64), _Z
    center = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return np.clip(center - half, 0, 1), np.clip(center + half, 0, 1)


def _describe(
    arrays: Arrays, found: dict[Any, Result], names: Sequence[str], intercept: bool
) -> None:
    """Add coefficients, angles and margins of the fits to all rows."""
    fits = [found[None, name] for name in names]
    beta = np.stack([fit["beta"] for fit in fits])
    unit = np.stack([_unit(row) for row in beta])
    cosine = np.clip(unit @ unit.T, -1, 1)
    arrays.add("angle", np.degrees(np.arccos(cosine)), "method", "other")
    arrays.add("coefficients", unit, "method", "feature")
    for quantity in ("margin", "train_accuracy"):
        arrays.add(quantity, np.stack([fit[quantity] for fit in fits]), "method")
    arrays.add("features_used", [used(row[int(intercept) :]) for row in unit], "method")


def _unit(beta: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return β/‖β‖ at any scale; NaN where β is zero or NaN."""
    top = np.abs(beta).max()
    if not 0 < top < math.inf:
        return np.full_like(beta, math.nan)
    scaled = beta / top  # whose squares neither vanish nor overflow
    found: npt.NDArray[np.float64] = scaled / np.linalg.norm(scaled)
    return found


def used(beta: npt.NDArray[np.float64]) -> float:
    """Return how many features carry 99 % of ‖β‖²; NaN where there is no β.

    Example:
        >>> used(np.array([0.0, 1.0, 0.001, -1.0]))
        2.0
    """
    if not np.isfinite(beta).all():
        return math.nan
    squares = np.sort(beta**2)[::-1]
    total = squares.sum()
    return float(np.searchsorted(squares.cumsum(), 0.99 * total) + 1) if total else 0.0


def claims(config: Compare, arrays: Arrays) -> Sequence[Claim]:
    """Return no claims: a user's table does not test any."""
    return ()


def draw(config: Compare, arrays: Arrays) -> "Figure":
    """Return accuracies, angles and coefficients."""
    from natgrad.experiments.compare.draw import picture

    return picture(arrays)
