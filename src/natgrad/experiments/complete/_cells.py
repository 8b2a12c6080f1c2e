"""Cells of `complete`: one model, fitted to one part of a user's table."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.experiments.complete._tables import Loaded, Part, load
from natgrad.experiments.complete.config import Centering, Data, Prepared
from natgrad.fits import Center, LowRankModel, fit_averaged, fit_nuclear_norm, fit_product
from natgrad.fits.completion import Predict
from natgrad.lab.cell import Result

CURVE = 100
"""Points of a held-out curve."""


@dataclass(frozen=True, kw_only=True)
class ProductConfig:
    """A product of factors; with depth two and a small width it is plain factorization."""

    data: Data
    how: Prepared
    part: Part
    center: Centering
    depth: int
    scale: float
    hidden: int
    until: float = math.inf
    """Longest time; infinite while tuning, which finds it."""
    max_evaluations: int = 3000


def product(config: ProductConfig, loaded: Loaded | None = None) -> Result:
    """Fit a product up to a given time, or return the state that is best on validation entries.

    A table in memory is passed as an argument; a table in a file is read where the cell runs.
    """
    loaded = loaded or load(config.data, config.how)
    entries = loaded.part(config.part)
    tuning = config.part != "test"
    fit = fit_product(
        entries,
        center=config.center,
        depth=config.depth,
        scale=config.scale,
        hidden=config.hidden,
        seed=config.how.seed,
        held_out=loaded.judged(config.part) if tuning else None,
        until=config.until,
        max_evaluations=config.max_evaluations,
    )
    found = {
        "error": np.asarray(error(fit.model.predict, loaded, config.part, config.how)),
        "evaluations": np.asarray(fit.evaluations),
    }
    if tuning:
        # The loss is a sum, so the speed of the flow is proportional to the number of entries.
        time = math.inf if fit.to_end else fit.time * len(entries)
        curve = _resampled(fit.curve, fit.model.center.unit)
        return found | {"work": np.asarray(time), "curve": curve}
    return found


def error(predict: Predict, loaded: Loaded, part: Part, how: Prepared) -> float:
    """Return the root mean squared error of clipped predictions.

    Test entries in rows or columns without a fitted entry are predicted by means.
    """
    judged = loaded.judged(part)
    found = predict(judged.positions)
    if part == "test":
        cold = loaded.cold
        if bool(cold.any()):
            means = Center.of(loaded.part(part), "means").at(judged.positions)
            found = torch.where(cold, means, found)
    gap = clipped(found, loaded, how) - judged.values
    return math.sqrt(float(gap.square().mean()))


def clipped(values: Tensor, loaded: Loaded, how: Prepared) -> Tensor:
    """Return predictions within the range of the observed values, unless told otherwise."""
    return values.clamp(*loaded.range) if how.clip else values


def _resampled(curve: Tensor, unit: float) -> npt.NDArray[Any]:
    """Return times and errors at a fixed number of times, equally spaced in log t."""
    t, error = curve.numpy().T
    times = np.geomspace(t[0], t[-1], CURVE)
    return np.stack([times, unit * np.interp(times, t, error)])


@dataclass(frozen=True, kw_only=True)
class AveragedConfig:
    """An average over folds of products with the same settings."""

    data: Data
    how: Prepared
    part: Part
    center: Centering
    depth: int
    scale: float
    hidden: int
    members: int
    max_evaluations: int = 3000


def averaged(config: AveragedConfig, loaded: Loaded | None = None) -> Result:
    """Fit one product without each fold, and average them."""
    loaded = loaded or load(config.data, config.how)
    fit = fit_averaged(
        loaded.part(config.part),
        center=config.center,
        depth=config.depth,
        scale=config.scale,
        hidden=config.hidden,
        seed=config.how.seed,
        members=config.members,
        max_evaluations=config.max_evaluations,
    )
    center = fit.model.center
    return {
        "index": fit.index.numpy(),
        "held_out": fit.held_out.numpy(),
        "left": fit.model.left.numpy(),
        "right": fit.model.right.numpy(),
        "mean": np.asarray(center.mean),
        "rows": center.rows.numpy(),
        "columns": center.columns.numpy(),
    }


def model_of(result: Result) -> LowRankModel:
    """Return the model in the result of `averaged`."""
    rows, columns, left, right = (
        torch.from_numpy(np.array(result[name])) for name in ("rows", "columns", "left", "right")
    )
    return LowRankModel(Center(float(result["mean"]), rows, columns, 1.0), left, right)


@dataclass(frozen=True, kw_only=True)
class NuclearConfig:
    """The penalized nuclear norm."""

    data: Data
    how: Prepared
    part: Part
    center: Centering
    width: int
    penalty: float | None = None
    """Penalty as a share of the largest useful one; None to choose it on validation entries."""


def nuclear(config: NuclearConfig, loaded: Loaded | None = None) -> Result:
    """Fit with the penalty given, or choose it on validation entries."""
    loaded = loaded or load(config.data, config.how)
    fit = fit_nuclear_norm(
        loaded.part(config.part),
        center=config.center,
        width=config.width,
        seed=config.how.seed,
        held_out=None if config.part == "test" else loaded.judged(config.part),
        penalty=config.penalty,
    )
    found = error(fit.model.predict, loaded, config.part, config.how)
    return {"error": np.asarray(found), "penalty": np.asarray(fit.penalty)}


@dataclass(frozen=True, kw_only=True)
class MeansConfig:
    """Predictions by means alone."""

    data: Data
    how: Prepared
    part: Part
    center: Centering


def means(config: MeansConfig, loaded: Loaded | None = None) -> Result:
    """Predict by the overall mean, or by row and column means."""
    loaded = loaded or load(config.data, config.how)
    center = Center.of(loaded.part(config.part), config.center)
    return {"error": np.asarray(error(center.at, loaded, config.part, config.how))}
