"""Cells of `natgrad compare`: one method, fitted to one part of a user's table."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.data._files import digest_of
from natgrad.data.tables import Columns, Labelled, labelled, matching, read_columns
from natgrad.diagnostics import margin
from natgrad.directions import euclidean, natural
from natgrad.errors import ConvergenceError, InvalidInputError
from natgrad.flows import Status, Trajectory, integrate
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression
from natgrad.lab.cell import Result
from natgrad.likelihoods import Bernoulli
from natgrad.limits import (
    SeparabilityError,
    least_squares,
    max_margin,
    natural_flow,
    separability,
)
from natgrad.parametrizations import Diagonal, Direct

KINDS = ("separable", "quasi-separable", "not separable")
_LATE = 60.0  # natural flow of data that no hyperplane separates has then met its optimum


@dataclass(frozen=True, kw_only=True)
class Data:
    """A user's tables, named by content as well as by path."""

    path: str
    digest: str
    label: str
    classes: tuple[str, str] | None = None
    test_path: str | None = None
    test_digest: str | None = None
    unlabelled_path: str | None = None
    unlabelled_digest: str | None = None


@dataclass(frozen=True, eq=False)
class Loaded:
    """Tables as numbers.

    Attributes:
        train: Rows to learn from.
        test: Inputs and labels to judge by, if they came apart.
        unlabelled: Further inputs, perhaps none.
        notes: Sentences on what was left out.
    """

    train: Labelled
    test: tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None
    unlabelled: npt.NDArray[np.float64]
    notes: tuple[str, ...] = ()


def gather(train: Labelled, test: Columns | None, unlabelled: Columns | None, label: str) -> Loaded:
    """Return tables as numbers, from columns."""
    notes, judged, inputs = list(train.notes), None, np.empty((0, len(train.names)))
    if test is not None:
        x, y, out = matching(test, train, label)
        judged = (x, y)
        if out:
            notes.append(f"{out} test rows lack a feature or a known label and were left out.")
    if unlabelled is not None:
        inputs, _, out = matching(unlabelled, train, None)
        if out:
            notes.append(f"{out} unlabelled rows lack a feature and were left out.")
    return Loaded(train, judged, inputs, tuple(notes))


@lru_cache(maxsize=1)
def load(data: Data) -> Loaded:
    """Read the tables.

    Raises:
        InvalidInputError: If they cannot be used; the message says why.
    """
    train = labelled(_columns(data.path, data.digest), data.label, classes=data.classes)
    test = unlabelled = None
    if data.test_path is not None:
        test = _columns(data.test_path, data.test_digest)
    if data.unlabelled_path is not None:
        unlabelled = _columns(data.unlabelled_path, data.unlabelled_digest)
    return gather(train, test, unlabelled, data.label)


def _columns(path: str, digest: str | None) -> Columns:
    if digest_of(path) != digest:
        raise InvalidInputError(f"{path} has changed since the run began; start again.")
    return read_columns(path)


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """How rows become inputs.

    Attributes:
        standardise: Centre each feature and divide it by its standard deviation, both taken from
            the training rows.
        intercept: Put a constant feature of value 1 first.
        folds: Number of parts of a cross-validation.
        seed: Of their choice.
    """

    standardise: bool = True
    intercept: bool = True
    folds: int = 5
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs and labels to fit, inputs and labels to judge by, and all inputs at hand."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    inputs: Tensor


def part(loaded: Loaded, how: Prepared, fold: int | None) -> Part:
    """Return one fold of the cross-validation; or, without a fold, all rows and the test rows."""
    x, y = loaded.train.x, loaded.train.y
    if fold is None:
        fit = np.ones(len(y), dtype=bool)
        held = loaded.test or (x[:0], y[:0])
    else:
        fit = folds(y, how) != fold
        held = (x[~fit], y[~fit])
    centre, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    if how.standardise:
        top = np.abs(x[fit]).max(axis=0, initial=0)
        unit = x[fit] / np.where(top > 0, top, 1.0)  # whose squares do not overflow
        centre, spread = unit.mean(axis=0) * top, unit.std(axis=0)
        scale = np.where(spread > 1e-12, spread * top, 1.0)

    def ready(rows: npt.NDArray[np.float64]) -> Tensor:
        out = (rows - centre) / scale
        return torch.from_numpy(np.insert(out, 0, 1.0, axis=1) if how.intercept else out)

    train, test = ready(x[fit]), ready(held[0])
    inputs = torch.cat([train, test, ready(loaded.unlabelled)])
    return Part(train, torch.from_numpy(y[fit]), test, torch.from_numpy(held[1]), inputs)


def folds(y: npt.NDArray[np.float64], how: Prepared) -> npt.NDArray[np.int64]:
    """Return the fold of each row; every fold has its share of both classes.

    Example:
        >>> folds(np.array([1.0, 1.0, -1.0, -1.0]), Prepared(folds=2)).tolist()
        [0, 1, 0, 1]
    """
    random = np.random.default_rng(how.seed)
    out = np.empty(len(y), dtype=np.int64)
    for value in (-1, 1):
        rows = random.permutation(np.flatnonzero(y == value))
        out[rows] = np.arange(len(rows)) % how.folds
    return out


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The question of which kind the data are."""

    data: Data
    how: Prepared


def kind(config: Kind, loaded: Loaded | None = None) -> Result:
    """Return the kind of the training rows (an index of KINDS) with and without the intercept.

    Tables in memory are an argument; tables in files are read where the cell runs.
    """
    rows = part(loaded or load(config.data), config.how, None)
    found = separability(rows.x, rows.y)
    out = {"kind": KINDS.index(found.kind), "rank": found.rank, "kind_without": -1}
    if config.how.intercept:
        without = separability(rows.x[:, 1:], rows.y)
        out["kind_without"] = KINDS.index(without.kind)
    return {name: np.asarray(value) for name, value in out.items()}


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One method on one part.

    Attributes:
        data: The tables.
        how: How rows become inputs.
        method: One of `methods`.
        fold: Fold held out; None fits all rows.
        until: Final time of EGD.
        natural_until: Final time of NGD.
        scale: Initial value of all factors of EGD but the first, which is zero.
    """

    data: Data
    how: Prepared
    method: str
    fold: int | None
    until: float
    natural_until: float
    scale: float


def fit(config: Fit, loaded: Loaded | None = None) -> Result:
    """Return β, its margin and accuracy on the rows fitted, and which held-out rows it gets right.

    β is NaN where the method has no answer: a max margin of data that are not separable. For a flow
    that ended before its time, `early` is when; else it is NaN.
    """
    rows = part(loaded or load(config.data), config.how, config.fold)
    beta, early = _solver(config)(rows)
    right = _right(beta, rows.test_x, rows.test_y)
    answered = not bool(torch.isnan(beta).any())
    values = {
        "beta": beta,
        "margin": margin(beta, rows.x, rows.y) if answered else beta.new_tensor(math.nan),
        "train_accuracy": _right(beta, rows.x, rows.y).mean(),
        "right": right if answered else torch.full_like(right, math.nan),
        "early": torch.tensor(early, dtype=torch.float64),
    }
    return {name: value.numpy() for name, value in values.items()}


def _right(beta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return 1 for rows on their side of the hyperplane; a row on it, to rounding, has none."""
    edge = 1e-12 * x.norm(dim=1) * beta.norm()
    right: Tensor = (y * (x @ beta) > edge).double()
    return right


def methods(depths: tuple[int, ...]) -> list[str]:
    """Return the names of all methods."""
    return [
        *(f"EGD L={depth}" for depth in depths),
        "NGD",
        "NGD population",
        "ℓ2 max margin",
        "ℓ1 max margin",
        "limit of NGD",
        "least squares",
    ]


Answer = tuple[Tensor, float]
"""β, and the time of a flow that ended early, or NaN."""


def _solver(config: Fit) -> Callable[[Part], Answer]:
    if config.method.startswith("EGD L="):
        depth = int(config.method.removeprefix("EGD L="))
        return lambda rows: _euclidean(rows, depth, config.until, config.scale)
    return {
        "NGD": lambda rows: (_natural(rows, config.natural_until), math.nan),
        "NGD population": lambda rows: _population(rows, config.natural_until),
        "ℓ2 max margin": lambda rows: (_margin(rows, 2), math.nan),
        "ℓ1 max margin": lambda rows: (_margin(rows, 1), math.nan),
        "limit of NGD": lambda rows: (_limit(rows), math.nan),
        "least squares": lambda rows: (least_squares(rows.x, rows.y).solution, math.nan),
    }[config.method]


def _early(flow: Trajectory[Any]) -> float:
    """Return when a flow ended, if that was before its time: stalled, singular or diverged."""
    if flow.status in (Status.TIME_REACHED, Status.CONVERGED):
        return math.nan
    return float(flow.times[-1])


def _euclidean(rows: Part, depth: int, until: float, scale: float) -> Answer:
    dim = rows.x.shape[1]
    model: Direct | Diagonal = Direct() if depth == 1 else Diagonal(depth)
    start = (
        torch.zeros(dim, dtype=torch.float64)
        if isinstance(model, Direct)
        else model.init_free(dim, scale=scale)
    )
    times = torch.tensor([until], dtype=torch.float64)
    batch = (rows.x, rows.y)
    found = integrate(euclidean, Bernoulli(), model, start, batch, until=until, times=times)
    return model.hypothesis(found.final), _early(found)


def _natural(rows: Part, until: float) -> Tensor:
    zero = torch.zeros(rows.x.shape[1], dtype=torch.float64)
    times = torch.tensor([until], dtype=torch.float64)
    return natural_flow_of_logistic_regression(zero, (rows.x, rows.y), times).final


def _population(rows: Part, until: float) -> Answer:
    found = integrate(
        natural,
        Bernoulli(),
        Direct(),
        torch.zeros(rows.x.shape[1], dtype=torch.float64),
        (rows.x, rows.y),
        until=until,
        times=torch.tensor([until], dtype=torch.float64),
        method="dopri",
        rtol=1e-4,
        max_evaluations=2000,
        fisher_over=rows.inputs,
    )
    return found.final, _early(found)


def _margin(rows: Part, p: int) -> Tensor:
    try:
        return max_margin(rows.x, rows.y, p).solution
    except (SeparabilityError, ConvergenceError):
        return torch.full_like(rows.x[0], math.nan)


def _limit(rows: Part) -> Tensor:
    """Return the vertex of the linear program, or the finite optimum where there is one."""
    try:
        return natural_flow(rows.x, rows.y).solution
    except SeparabilityError:
        return _natural(rows, _LATE)
    except ConvergenceError:
        return torch.full_like(rows.x[0], math.nan)
