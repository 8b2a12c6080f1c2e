"""What separators are: coefficients, angles, the features they use, and a plane to see them in."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Result

Floats = npt.NDArray[np.float64]

_SHOWN = 1000  # rows in the plane
_APART = 0.05  # separators that differ by less, about 3°, look the same


def describe(
    arrays: Arrays, found: Mapping[Any, Result], names: Sequence[str], intercept: bool
) -> None:
    """Add coefficients, angles and margins of the fits to all rows, and where they would stop."""
    fits = [found[None, name] for name in names]
    unit = np.stack([direction(fit["beta"]) for fit in fits])
    flat = unit.reshape(len(names), -1)
    cosine = np.clip(flat @ flat.T, -1, 1)
    arrays.add("angle", np.degrees(np.arccos(cosine)), "method", "other")
    axes = ("class", "feature") if unit.shape[1] > 1 else ("feature",)
    arrays.add("coefficients", unit if unit.shape[1] > 1 else unit[:, 0], "method", *axes)
    for quantity in ("margin", "train_accuracy"):
        arrays.add(quantity, np.stack([fit[quantity] for fit in fits]), "method")
    arrays.add("features_used", [used(one[:, int(intercept) :]) for one in unit], "method")
    steps = zip(arrays.coordinates["path"], arrays["stop_step"].tolist(), strict=True)
    stopped = np.stack([direction(found[None, name]["path"][step]) for name, step in steps])
    arrays.add("stop_coefficients", stopped if len(axes) == 2 else stopped[:, 0], "path", *axes)


def direction(beta: Floats) -> Floats:
    """Return β/‖β‖ at any scale, `(classes or 1, d)`; NaN where β is zero or NaN.

    Several classes are centered: the same vector added to all of them changes no prediction.
    """
    top = np.abs(beta).max()
    if not 0 < top < math.inf:
        return np.full_like(beta, math.nan)
    scaled = beta / top  # whose squares neither vanish nor overflow
    if len(beta) > 1:
        scaled = scaled - scaled.mean(axis=0)
    found: Floats = scaled / np.linalg.norm(scaled)
    return found


def used(beta: Floats) -> float:
    """Return how many features carry 99 % of ‖β‖²; NaN where there is no β.

    Example:
        >>> used(np.array([0.0, 1.0, 0.001, -1.0]))
        2.0
    """
    if not np.isfinite(beta).all():
        return math.nan
    squares = np.sort((np.atleast_2d(beta) ** 2).sum(axis=0))[::-1]
    total = squares.sum()
    return float(np.searchsorted(squares.cumsum(), 0.99 * total) + 1) if total else 0.0


def add_plane(arrays: Arrays, x: Floats, labels: npt.NDArray[np.int64], intercept: bool) -> None:
    """Add the rows in the two most telling directions, and every separator in that plane.

    The first direction is the leading principal component of all separators' scores of the rows,
    the second that of what it leaves unexplained; if the separators agree, it is the one in which
    the rows themselves vary most. A separator in the plane is the line on which its score, as far
    as the two directions predict it, is zero.

    Args:
        arrays: Where coefficients are, and where the plane is added.
        x: Inputs of the training rows, with the intercept first if there is one.
        labels: Their classes.
        intercept: Whether there is one.
    """
    beta = arrays["coefficients"]
    beta = beta if beta.ndim == 3 else beta[:, None]
    rows = x[:, int(intercept) :]
    known = np.isfinite(beta).all(axis=(1, 2))
    axes = _axes(beta[known][:, :, int(intercept) :], rows, labels)
    seen = rows @ axes.T
    chosen = np.arange(len(rows))
    if len(rows) > _SHOWN:
        chosen = np.sort(np.random.default_rng(0).choice(len(rows), _SHOWN, replace=False))
    design = np.column_stack([seen, np.ones(len(rows))])
    scores = x @ beta[known].reshape(-1, x.shape[1]).T
    line = np.full((*beta.shape[:2], 3), math.nan)
    line[known] = np.linalg.lstsq(design, scores, rcond=None)[0].T.reshape(-1, beta.shape[1], 3)
    arrays.add("plane_axes", axes, "axis", "slope")
    arrays.add("plane_rows", seen[chosen], "shown", "axis")
    arrays.add("plane_label", labels[chosen], "shown")
    arrays.add("plane_line", line, "method", "separator", "coefficient")


def _axes(slopes: Floats, rows: Floats, labels: npt.NDArray[np.int64]) -> Floats:
    """Return two directions, `(2, d)`, along which the rows have unit variance."""
    centered = rows - rows.mean(axis=0)
    flat = slopes.reshape(-1, rows.shape[1])
    if not len(flat) or not np.abs(centered @ flat.T).max() > 0:
        flat = (rows[labels == 1].mean(axis=0) - rows[labels == 0].mean(axis=0))[None]
    first = _leading(centered, flat)
    # What is left of the scores, and of the rows, when the first direction is regressed out.
    along = centered @ first
    rest = _without(flat, first, centered, along)
    spread = (centered @ flat.T).std(axis=0)
    apart = (centered @ rest.T).std(axis=0) / np.where(spread > 0, spread, 1)
    if apart.max() < _APART:
        rest = _without(np.eye(rows.shape[1]), first, centered, along)
    second = _leading(centered, rest)
    second = second * np.sign(second[np.abs(second).argmax()] or 1)
    # Later classes, whose scores are positive, are to the right.
    return np.stack([first * np.sign(along @ (labels - labels.mean()) or 1), second])


def _without(flat: Floats, first: Floats, centered: Floats, along: Floats) -> Floats:
    """Return functions of the rows minus what one direction predicts of them."""
    total = along @ along
    share = (flat @ (centered.T @ along)) / total if total > 0 else np.zeros(len(flat))
    found: Floats = flat - np.outer(share, first)
    return found


def _leading(centered: Floats, flat: Floats) -> Floats:
    """Return the direction of the leading component of scores, which are scaled to one size."""
    scores = centered @ flat.T
    sizes = scores.std(axis=0)
    flat = flat[sizes > 1e-9 * (sizes.max() or 1)]
    if not len(flat) or not sizes.max() > 0:
        return np.zeros(centered.shape[1])
    scores = centered @ flat.T
    scale = scores.std(axis=0)
    weights = np.linalg.svd(scores / scale, full_matrices=False)[2][0]
    found: Floats = (weights / scale) @ flat
    spread = float((centered @ found).std())
    return found / spread if spread > 0 else np.zeros_like(found)
