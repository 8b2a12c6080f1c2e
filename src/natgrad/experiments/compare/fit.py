"""Compare separators: fit every method to every part of a table, and judge the fits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad._checks import refuse_unknown
from natgrad._renamed import renamed
from natgrad.errors import InvalidInputError
from natgrad.experiments.compare import _cells as cells
from natgrad.experiments.compare._describe import add_plane, describe
from natgrad.experiments.compare._judge import Held, judge, stop, telltale, twin_ceiling
from natgrad.experiments.compare._tables import Loaded, data_of, in_memory, load
from natgrad.experiments.compare.config import OPTIONS, RENAMED, Compare, Data, Prepared
from natgrad.experiments.compare.result import Comparison, comparison
from natgrad.fits import PENALTIES, methods
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS, Experiment, Sweep, in_this_process

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["compare", "compute", "data_of", "experiment"]


@renamed(**RENAMED)
def compare(
    x: Any,
    y: Sequence[Any] | npt.ArrayLike,
    *,
    test: tuple[Any, Any] | None = None,
    unlabeled: Any = None,
    names: Sequence[str] | None = None,
    classes: Sequence[Any] | None = None,
    **options: Any,
) -> Comparison:
    """Compare the separators that EGD at each depth, NGD and their limits find.

    The data may be separable, quasi-separable, not separable or rank-deficient. The result says
    which, and what that means for the methods. It can be printed, drawn (`plot`, `figure`), and is
    shown as tables in notebooks.

    Args:
        x: Features, `(n, d)`: an array, a tensor or a data frame. Columns of text become one
            feature per level, and gaps are filled.
        y: Labels, two or more different values.
        test: Test features and labels; without them, accuracy is from cross-validation.
        unlabeled: Further inputs over which the population Fisher is averaged.
        names: Names of the features; by default those of a data frame, or numbers.
        classes: The labels to compare, if not all; of two, the second counts as +1.
        options: Fields of `natgrad.experiments.compare.config.Choices`: `depths`, `until`,
            `natural_until`, `scale`, `standardize`, `intercept`, `folds`, `held_out`, `seed`,
            `categories`, `missing`, `drop`, `keep`, `class_weight`.

    Raises:
        InvalidInputError: If there is nothing to compare; the message says why.

    Example:
        >>> x = np.array([[2.0, 1.0], [1.0, 2.0], [3.0, 1.5], [-1.0, -2.0], [-2.0, 0.5], [-1, -1]])
        >>> found = compare(x, ["a", "a", "a", "b", "b", "b"], depths=(1, 2), folds=2)
        >>> found.kind, found.accuracy["EGD L=1"]
        ('separable', 1.0)
        >>> print(found.verdict[0][:54])
        Separable: hyperplanes divide the rows of the two clas
    """
    refuse_unknown(options, OPTIONS, "compare")
    how = Compare(data=Data(path="", digest="", label=""), **options).how
    data, loaded = in_memory(
        x, y, how, test=test, unlabeled=unlabeled, names=names, classes=classes
    )
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
        departures=told,
        tell=lambda config, arrays: " ".join(comparison(config, arrays).verdict[:2]),
    )


def compute(config: Compare, sweep: Sweep, given: Loaded | None = None) -> Arrays:
    """Return accuracies, margins, angles, coefficients and paths of all methods.

    Args:
        config: How to compare.
        sweep: Runs the cells.
        given: The tables, if they are in memory; else they are read from the config's files.
    """
    loaded = given or load(config.data, config.how)  # refuse bad tables here, not in a worker
    splits = _splits(config, loaded)
    how = replace(config.how, folds=max(len(splits), 2))
    names = methods(config.depths)
    dials = {name: cells.dial(name, config.until, config.natural_until) for name in names}
    paths = [*(name for name in names if dials[name] is not None), *PENALTIES]
    judged = loaded.test is None  # by folds
    asked = {
        (fold, name): Cell(
            cells.separator,
            cells.Fit(
                data=config.data,
                how=how,
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
        for name in (*names, *PENALTIES)
        if fold is None or judged or name in paths
    }
    which = cells.Kind(data=config.data, how=how)
    question = Cell(cells.kind, which, "kind of data", given)
    answer, *fits = sweep([question, *asked.values()], "fits")
    found = dict(zip(asked, fits, strict=True))
    parts = [None, *splits] if judged else [None]
    arrays = Arrays(
        method=names,
        other=names,
        feature=[*(["intercept"] if config.intercept else []), *loaded.train.names],
        fold=list(range(len(splits))),
        part=[_part(fold) for fold in parts],
        path=paths,
        when=["stopped", "end"],
        **{"class": loaded.train.classes},
    )
    held = _held(loaded, how, splits)
    judge(arrays, found, names, held)
    stop(arrays, found, held)
    ends = [cells.dial(name, config.until, config.natural_until) for name in paths]
    arrays.add("path_dial", np.stack([end for end in ends if end is not None]), "path", "step")
    describe(arrays, found, names, config.intercept)
    rows = cells.part(loaded, how, None)
    add_plane(arrays, rows.x.numpy(), loaded.train.labels, config.intercept)
    for name, value in answer.items():
        arrays.add(name, value)
    _count(arrays, loaded)
    early = [[found[fold, name]["early"] for fold in parts] for name in names]
    arrays.add("ended_early", early, "method", "part")
    return arrays


def _part(fold: int | None) -> str:
    return "all rows" if fold is None else f"fold {fold + 1}"


def _splits(config: Compare, loaded: Loaded) -> list[int]:
    """Return the folds: they judge all methods, or choose only where to stop."""
    labels, classes = loaded.train.labels, loaded.train.classes
    fewest = int(np.bincount(labels, minlength=len(classes)).min())
    if loaded.test is not None:
        many = min(config.folds, fewest)
        return list(range(many)) if many > 1 else []
    if fewest < config.folds:
        raise InvalidInputError(
            f"{config.folds} folds need as many rows of each class, but one has {fewest}. Give "
            "fewer folds, name the classes to use, or give a test table."
        )
    return list(range(config.folds))


def _held(loaded: Loaded, how: Prepared, splits: Sequence[int]) -> Held:
    labels = loaded.train.labels
    fold = cells.folds(labels, how)
    by_fold = [labels[fold == k] for k in splits]
    judged = np.concatenate(by_fold) if loaded.test is None else loaded.test[1]
    parts = list(splits) if loaded.test is None else [None]
    balanced = how.class_weight == "balanced"
    return Held(parts, splits, judged, by_fold, len(loaded.train.classes), balanced)


def _count(arrays: Arrays, loaded: Loaded) -> None:
    """Add what the rows alone say."""
    x, labels = loaded.train.x, loaded.train.labels
    arrays.add("rows", len(labels))
    arrays.add("class_rows", np.bincount(labels, minlength=len(loaded.train.classes)), "class")
    arrays.add("twin_ceiling", twin_ceiling(np.nan_to_num(x, nan=np.inf), labels))
    two = len(loaded.train.classes) == 2
    arrays.add("telltale", telltale(x, labels) if two else np.zeros(x.shape[1], bool), "slope")
    arrays.add("gaps", int(np.isnan(x).sum()))


def told(config: Compare, arrays: Arrays) -> Sequence[str]:
    """Return the verdict, what was done to the data, and notes, for the report."""
    found = comparison(config, arrays)
    done = [f"Done to the data: {step}." for step in found.steps]
    return [*found.verdict, *done, *found.notes]


def claims(config: Compare, arrays: Arrays) -> Sequence[Claim]:
    """Return no claims: a user's table does not test any."""
    return ()


def draw(config: Compare, arrays: Arrays) -> "Figure":
    """Return the data with every separator, coefficients, paths, accuracy and calibration."""
    from natgrad.experiments.compare.draw import picture

    return picture(arrays)
