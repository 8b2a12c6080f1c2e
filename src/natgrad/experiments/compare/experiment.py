"""Comparing separators on a user's table, as an experiment."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from natgrad._checks import flag, integer, number, refuse_unknown
from natgrad.errors import InvalidInputError
from natgrad.experiments._arguments import DEEPEST, integers
from natgrad.experiments.compare import cells
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import PRESETS, Experiment, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LARGEST_SCALE = 1e6  # products of larger factors overflow before they are fitted
_Z = 1.959963984540054  # of a 95 % interval


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How to compare separators."""

    depths: tuple[int, ...] = (1, 2, 3, 4)
    """Depths L of EGD."""
    until: float = 1e6
    """Final time of EGD, on the mean loss."""
    natural_until: float = 10.0
    """Final time of NGD; its limit is computed apart."""
    scale: float = 0.1
    """Initial value of all factors of EGD but the first, which starts at zero."""
    standardise: bool = True
    """Centre features and divide them by their standard deviations."""
    intercept: bool = True
    """Add a constant feature."""
    folds: int = 5
    """Parts of the cross-validation, when no test table is given."""
    seed: int = 0
    """Seed of the cross-validation."""

    def __post_init__(self) -> None:
        """Refuse what cannot be fitted."""
        checked = {
            "depths": integers(self.depths, "depths", low=1, high=DEEPEST),
            **{
                name: number(getattr(self, name), name, low=0, low_open=True)
                for name in ("until", "natural_until")
            },
            "scale": number(self.scale, "scale", low=0, low_open=True, high=_LARGEST_SCALE),
            "standardise": flag(self.standardise, "standardise"),
            "intercept": flag(self.intercept, "intercept"),
            "folds": integer(self.folds, "folds", low=2),
            "seed": integer(self.seed, "seed", low=0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)


OPTIONS = tuple(field.name for field in fields(Choices))


@dataclass(frozen=True, kw_only=True)
class Compare(Choices):
    """How to compare separators on a table."""

    data: cells.Data
    """The table, the column of labels, and further tables."""

    @property
    def how(self) -> cells.Prepared:
        """Return how rows become inputs."""
        return cells.Prepared(
            standardise=self.standardise,
            intercept=self.intercept,
            folds=self.folds,
            seed=self.seed,
        )


def experiment(data: cells.Data, **options: Any) -> Experiment[Compare]:
    """Return the experiment for a table.

    Raises:
        InvalidInputError: If there is no such option.
    """
    stem = Path(data.path).stem if data.path else "table"
    refuse_unknown(options, OPTIONS, "compare")
    config = Compare(data=data, **options)
    return Experiment(
        name=f"compare/{stem}",
        title=f"Separators of {stem}: EGD at each depth, NGD, and where they tend",
        source="natgrad compare",
        presets=dict.fromkeys(PRESETS, config),
        minutes=dict.fromkeys(PRESETS, 1.0),
        compute=compute,
        claims=claims,
        draw=draw,
        departures=notes,
    )


def compute(config: Compare, sweep: Sweep, given: cells.Loaded | None = None) -> Arrays:
    """Return accuracies, margins, angles and coefficients of all methods.

    Args:
        config: How to compare.
        sweep: Where cells run.
        given: The tables, if they lie in memory; else they are read from the files of the config.
    """
    loaded = given or cells.load(config.data)  # bad tables are refused here, not by a worker
    splits = _splits(config, loaded)
    names = cells.methods(config.depths)
    asked = {
        (fold, name): Cell(
            cells.fit,
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


def _splits(config: Compare, loaded: cells.Loaded) -> list[int]:
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
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return np.clip(centre - half, 0, 1), np.clip(centre + half, 0, 1)


def _describe(
    arrays: Arrays, found: dict[Any, Result], names: Sequence[str], intercept: bool
) -> None:
    """Add what the fits to all rows look like."""
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
    """Return β/‖β‖ at any scale; NaN where β is zero, or NaN itself, and has no direction."""
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
    """Return nothing: a user's table decides no claim of ours."""
    return ()


def draw(config: Compare, arrays: Arrays) -> "Figure":
    """Return accuracies, angles and coefficients."""
    from natgrad.experiments.compare.picture import picture

    return picture(arrays)


def notes(config: Compare, arrays: Arrays, given: cells.Loaded | None = None) -> Sequence[str]:
    """Return sentences: of which kind the data are, what was left out, what numbers mean."""
    loaded = given or cells.load(config.data)
    first, second = loaded.train.classes
    split = f"{config.folds}-fold cross-validation" if "fold_accuracy" in arrays else "test table"
    return [
        kind_sentence(arrays, config.intercept),
        f"{len(loaded.train.y)} rows, {len(loaded.train.names)} features; {second!r} against "
        f"{first!r}.",
        *loaded.notes,
        *early_sentences(config, arrays),
        f"Accuracy is that of a {split} over {int(arrays['judged_rows'])} rows; intervals are "
        "Wilson's, 95 %"
        + (", and take folds as independent." if "fold_accuracy" in arrays else "."),
        f"EGD is gradient flow to t = {config.until:g} on the mean loss from w₁ = 0 and the other "
        f"factors {config.scale:g}; NGD is natural gradient flow to t = {config.natural_until:g}, "
        "its Fisher averaged over the rows fitted, or (population) over all inputs at hand: those "
        "of held-out, test and unlabelled rows too, without their labels.",
        "Margins and angles are those of fits to all rows, "
        f"{'standardised' if config.standardise else 'not standardised'}"
        f"{', the intercept counted as a feature' if config.intercept else ''}; the limit of NGD "
        "is a vertex of a linear program, or the optimum of the loss where that is finite.",
    ]


def early_sentences(config: Compare, arrays: Arrays) -> list[str]:
    """Return a sentence for each method whose flow ended before its time, in some fit."""
    sentences = []
    for name, ends in zip(arrays.coordinates["method"], arrays["ended_early"], strict=True):
        until = config.until if name.startswith("EGD") else config.natural_until
        parts = zip(arrays.coordinates["part"], ends.tolist(), strict=True)
        where = [f"t = {end:.3g} ({part})" for part, end in parts if not math.isnan(end)]
        if where:
            sentences.append(
                f"The flow of {name} ended early, at {', '.join(where)} instead of t = {until:g}; "
                "its numbers are those of the last state reached."
            )
    return sentences


def kind_sentence(arrays: Arrays, intercept: bool) -> str:
    """Return of which kind the data are, in words."""
    kind, rank = cells.KINDS[int(arrays["kind"])], int(arrays["rank"])
    size = len(arrays.coordinates["feature"])
    with_it = " with an intercept" if intercept else " through the origin"
    sentence = f"The data are {kind}{with_it}"
    if intercept and arrays["kind_without"] != arrays["kind"]:
        sentence += f", and {cells.KINDS[int(arrays['kind_without'])]} without"
    if rank < size:
        return f"{sentence}; they are rank-deficient: rank {rank}, {size} columns."
    return f"{sentence}; they have full rank {rank}."
