"""Cells of `complete`: one model, fitted to one part of a user's table."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from natgrad.data.triples import Triples
from natgrad.experiments.complete._tables import Loaded, Part, load
from natgrad.experiments.complete.config import Centering, Data, Prepared
from natgrad.fits import Center, LowRankModel, fit_nuclear_norm, fit_product, rmse
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
    """Longest time; None while tuning, which finds it."""
    max_evaluations: int = 3000


def product(config: ProductConfig, loaded: Loaded | None = None) -> Result:
    """Fit a product up to a given time, or return the state that is best on validation entries.

    A table in memory is passed as an argument; a table in a file is read where the cell runs.
    """
    loaded = loaded or load(config.data, config.how)
    entries = loaded.part(config.part)
    tuning = config.part == "tune"
    fit = fit_product(
        entries,
        center=config.center,
        depth=config.depth,
        scale=config.scale,
        hidden=config.hidden,
        seed=config.how.seed,
        held_out=loaded.validation if tuning else None,
        until=config.until,
        max_evaluations=config.max_evaluations,
    )
    judged = loaded.validation if tuning else loaded.test
    found = {
        "error": np.asarray(rmse(fit.model.predict, judged)),
        "evaluations": np.asarray(fit.evaluations),
    }
    if tuning:
        # The loss is a sum, so the speed of the flow is proportional to the number of entries.
        time = math.inf if fit.to_end else fit.time * len(entries)
        curve = _resampled(fit.curve, fit.model.center.unit)
        return found | {"work": np.asarray(time), "curve": curve}
    found["values"] = fit.model.singular_values().numpy()
    if config.part == "all":
        found["matrix"] = _completed(loaded.triples, fit.model)
    return found


def _resampled(curve: Tensor, unit: float) -> npt.NDArray[Any]:
    """Return times and errors at a fixed number of times, equally spaced in log t."""
    t, error = curve.numpy().T
    times = np.geomspace(t[0], t[-1], CURVE)
    return np.stack([times, unit * np.interp(times, t, error)])


def _completed(triples: Triples, model: LowRankModel) -> npt.NDArray[np.float32]:
    """Return the whole matrix, with observed entries as they are."""
    matrix = model.matrix()
    rows, columns = triples.positions.unbind(1)
    matrix[rows, columns] = triples.values.float()
    return matrix.numpy()


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
    tuning = config.part == "tune"
    fit = fit_nuclear_norm(
        loaded.part(config.part),
        center=config.center,
        width=config.width,
        seed=config.how.seed,
        held_out=loaded.validation if tuning else None,
        penalty=config.penalty,
    )
    judged = loaded.validation if tuning else loaded.test
    error = rmse(fit.model.predict, judged)
    return {"error": np.asarray(error), "penalty": np.asarray(fit.penalty)}


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
    return {"error": np.asarray(rmse(center.at, loaded.test))}
