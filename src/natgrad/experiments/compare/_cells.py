"""Cells of `compare`: one method, fitted to one part of a user's table."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.data.tables import fill_gaps, typical_values
from natgrad.diagnostics import margin
from natgrad.experiments.compare._tables import Loaded, load
from natgrad.experiments.compare.config import KINDS, Data, Prepared
from natgrad.fits import (
    PENALTIES,
    Scaling,
    balanced_rows,
    correct,
    fit_classes,
    log_probabilities,
    predicted,
)
from natgrad.lab.cell import Result
from natgrad.limits import separability

STEPS = 41
"""Points of each path: times of a flow, or inverse strengths of a penalty."""

COUPLINGS = (0.0, 0.5, 1.0)
"""How scores of more than two classes may become probabilities; other folds choose."""

_DECADES = {"EGD": 7.0, "NGD": 3.0}  # before the final time
_WEAKEST = (-1.0, 5.0)  # decades of 1/λ


@dataclass(frozen=True, eq=False)
class Part:
    """Training inputs and labels, test inputs and labels, and all available inputs."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    inputs: Tensor


def part(loaded: Loaded, how: Prepared, fold: int | None) -> Part:
    """Return one fold of the cross-validation, or all rows and the test rows without one.

    Gaps are filled, and features standardized, by the rows fitted alone.
    """
    x, y = loaded.train.x, loaded.train.labels
    if fold is None:
        fit = np.ones(len(y), dtype=bool)
        held = loaded.test or (x[:0], y[:0])
    else:
        fit = folds(y, how) != fold
        held = (x[~fit], y[~fit])
    usual = typical_values(x[fit])
    rows = fill_gaps(x[fit], usual)
    ready = Scaling.of(rows, standardize=how.standardize, intercept=how.intercept)
    train, test = ready(rows), ready(fill_gaps(held[0], usual))
    inputs = torch.cat([train, test, ready(fill_gaps(loaded.unlabeled, usual))])
    return Part(train, torch.from_numpy(y[fit]), test, torch.from_numpy(held[1]), inputs)


def folds(y: npt.NDArray[Any], how: Prepared) -> npt.NDArray[np.int64]:
    """Return the fold of each row; every fold gets its share of every class.

    Example:
        >>> folds(np.array([1, 1, 0, 0]), Prepared(folds=2)).tolist()
        [0, 1, 0, 1]
    """
    random = np.random.default_rng(how.seed)
    out = np.empty(len(y), dtype=np.int64)
    for value in np.unique(y):
        rows = random.permutation(np.flatnonzero(y == value))
        out[rows] = np.arange(len(rows)) % how.folds
    return out


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A test of whether the data are separable."""

    data: Data
    how: Prepared


def kind(config: Kind, loaded: Loaded | None = None) -> Result:
    """Return the kind of the training rows, an index into KINDS, with and without the intercept.

    `separated` counts the rows of two classes that can be separated.

    Tables in memory are passed as an argument; tables in files are read where the cell runs.
    """
    loaded = loaded or load(config.data, config.how)
    rows = part(loaded, config.how, None)
    classes = len(loaded.train.classes)
    found = separability(rows.x, torch.where(rows.y == 1, 1.0, -1.0).double())
    out = {"kind": _kind(rows.x, rows.y, classes), "rank": found.rank, "kind_without": -1}
    out["separated"] = int(found.separated.sum()) if classes == 2 else -1
    if config.how.intercept and classes == 2:
        out["kind_without"] = _kind(rows.x[:, 1:], rows.y, classes)
    return {name: np.asarray(value) for name, value in out.items()}


def _kind(x: Tensor, y: Tensor, classes: int) -> int:
    """Return the kind; several classes are separable if joint separators have a margin."""
    found = [
        separability(x, torch.where(y == k, 1.0, -1.0).double()).kind
        for k in ([1] if classes == 2 else range(classes))
    ]
    if classes == 2 or all(one == "separable" for one in found):
        return KINDS.index(found[0])
    wrong = torch.ones(len(x), classes, dtype=torch.bool).scatter(1, y[:, None], False)
    row, other = wrong.nonzero(as_tuple=True)
    pairs = x.new_zeros(len(row), classes, x.shape[1])
    at = torch.arange(len(row))
    pairs[at, y[row]] += x[row]
    pairs[at, other] -= x[row]
    return KINDS.index(separability(pairs.flatten(1), x.new_ones(len(row))).kind)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """One method, fitted to one part of the table.

    Attributes:
        data: The tables.
        how: How rows become inputs.
        method: One of `methods`, or a penalty.
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


def dial(method: str, until: float, natural_until: float) -> npt.NDArray[np.float64] | None:
    """Return the points of a path: times, or 1/λ for a penalty; None for methods without one.

    Example:
        >>> dial("EGD L=2", 1e6, 10.0)[[0, -1]].round(6).tolist()
        [0.1, 1000000.0]
    """
    if method in PENALTIES:
        return np.logspace(*_WEAKEST, STEPS)
    name = method[:3]
    if name not in _DECADES:
        return None
    end = until if name == "EGD" else natural_until
    return end * np.logspace(-_DECADES[name], 0, STEPS)


def separator(config: Fit, loaded: Loaded | None = None) -> Result:
    """Return β, its margin and accuracy on the rows fitted, and which held-out rows are right.

    β is NaN where the method has no answer: a max margin of data that are not separable. If a flow
    ended before its final time, `early` is the time it reached; else it is NaN. Along a path,
    `path_right`, `path_loss` and `path_sure` say for each held-out row whether it is right, and for
    each coupling its log loss and the probability of the class predicted.
    """
    loaded = loaded or load(config.data, config.how)
    rows = part(loaded, config.how, config.fold)
    x, y, classes = rows.x, rows.y, len(loaded.train.classes)
    points = dial(config.method, config.until, config.natural_until)
    if config.how.class_weight == "balanced" and "max margin" not in config.method:
        again = balanced_rows(y, classes)
        x, y = x[again], y[again]
    found = fit_classes(
        config.method,
        x,
        y,
        classes,
        inputs=rows.inputs,
        until=config.until,
        natural_until=config.natural_until,
        scale=config.scale,
        times=None if points is None else torch.from_numpy(points),
        free=int(config.how.intercept),
    )
    none = bool(found.beta.isnan().any())
    right = _right(found.beta, rows.test_x, rows.test_y)
    values = {
        "beta": found.beta,
        "margin": torch.tensor(math.nan if none else _margin(found.beta, rows.x, rows.y)),
        "train_accuracy": _right(found.beta, rows.x, rows.y).mean(),
        "right": torch.full_like(right, math.nan) if none else right,
        "early": torch.tensor(found.early, dtype=torch.float64),
    }
    if found.path is not None:
        if len(rows.test_y):
            values |= _along(found.path, rows.test_x, rows.test_y)
        if config.fold is None:
            values["path"] = found.path
    return {name: value.numpy() for name, value in values.items()}


def _right(beta: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return 1 for rows whose class is predicted, else 0."""
    if len(beta) == 1:
        return correct(beta[0], x, torch.where(y == 1, 1.0, -1.0).double())
    return ((x @ beta.mT).argmax(1) == y).double()


def _margin(beta: Tensor, x: Tensor, y: Tensor) -> float:
    """Return the smallest lead of the right class, relative to ‖β‖."""
    if len(beta) == 1:
        return float(margin(beta[0], x, torch.where(y == 1, 1.0, -1.0).double()))
    scores = x @ (beta / beta.norm()).mT
    own = scores.gather(1, y[:, None])[:, 0]
    others = scores.scatter(1, y[:, None], -math.inf).amax(1)
    return float((own - others).min())


def _along(path: Tensor, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    scores = x @ path.mT  # (steps, n, k)
    if scores.shape[-1] == 1:
        edge = 1e-12 * x.norm(dim=1) * path.flatten(1).norm(dim=1)[:, None]
        right = torch.where(y == 1, scores[..., 0] > edge, scores[..., 0] < -edge)
    else:
        right = predicted(scores) == y
    own, sure = [], []
    for coupling in COUPLINGS if scores.shape[-1] > 1 else (0.0,):
        logs = log_probabilities(scores, coupling=coupling)
        own.append(logs.gather(2, y[None, :, None].expand(len(path), -1, 1))[..., 0])
        sure.append(logs.amax(-1).exp().float())
    return {"path_right": right, "path_loss": -torch.stack(own), "path_sure": torch.stack(sure)}
