"""Cells of `compare`: one method, fitted to one part of a user's table."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.diagnostics import margin
from natgrad.experiments.compare._tables import Loaded, load
from natgrad.experiments.compare.config import Data, Prepared
from natgrad.experiments.compare.result import KINDS
from natgrad.fits import Scaling, correct, fit_separator
from natgrad.lab.cell import Result
from natgrad.limits import separability


@dataclass(frozen=True, eq=False)
class Part:
    """Training inputs and labels, test inputs and labels, and all available inputs."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    inputs: Tensor


def part(loaded: Loaded, how: Prepared, fold: int | None) -> Part:
    """Return one fold of the cross-validation, or all rows and the test rows without one."""
    x, y = loaded.train.x, loaded.train.y
    if fold is None:
        fit = np.ones(len(y), dtype=bool)
        held = loaded.test or (x[:0], y[:0])
    else:
        fit = folds(y, how) != fold
        held = (x[~fit], y[~fit])
    ready = Scaling.of(x[fit], standardize=how.standardize, intercept=how.intercept)
    train, test = ready(x[fit]), ready(held[0])
    inputs = torch.cat([train, test, ready(loaded.unlabeled)])
    return Part(train, torch.from_numpy(y[fit]), test, torch.from_numpy(held[1]), inputs)


def folds(y: npt.NDArray[np.float64], how: Prepared) -> npt.NDArray[np.int64]:
    """Return the fold of each row; every fold gets its share of both classes.

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
    """A test of whether the data are separable."""

    data: Data
    how: Prepared


def kind(config: Kind, loaded: Loaded | None = None) -> Result:
    """Return the kind of the training rows, an index into KINDS, with and without the intercept.

    Tables in memory are passed as an argument; tables in files are read where the cell runs.
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
    """One method, fitted to one part of the table.

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


def separator(config: Fit, loaded: Loaded | None = None) -> Result:
    """Return β, its margin and accuracy on the rows fitted, and which held-out rows are right.

    β is NaN where the method has no answer: a max margin of data that are not separable. If a flow
    ended before its final time, `early` is the time it reached; else it is NaN.
    """
    rows = part(loaded or load(config.data), config.how, config.fold)
    found = fit_separator(
        config.method,
        rows.x,
        rows.y,
        inputs=rows.inputs,
        until=config.until,
        natural_until=config.natural_until,
        scale=config.scale,
    )
    beta, none = found.beta, bool(found.beta.isnan().any())
    right = correct(beta, rows.test_x, rows.test_y)
    values = {
        "beta": beta,
        "margin": beta.new_tensor(math.nan) if none else margin(beta, rows.x, rows.y),
        "train_accuracy": correct(beta, rows.x, rows.y).mean(),
        "right": torch.full_like(right, math.nan) if none else right,
        "early": torch.tensor(found.early, dtype=torch.float64),
    }
    return {name: value.numpy() for name, value in values.items()}
