"""How good separators are on held-out rows: accuracy, stopping points, calibration, ceilings."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.experiments.compare._cells import STEPS
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Result

Floats = npt.NDArray[np.float64]

BINS = 8
"""Groups of rows, by probability, in which predictions and frequencies are compared."""
_Z = 1.959963984540054  # of a 95 % interval


@dataclass(frozen=True, eq=False)
class Held:
    """Held-out rows.

    Attributes:
        parts: The fits that are judged: folds, or None for the fit to all training rows.
        folds: Folds that choose where to stop.
        labels: Class of each judged row, in the order of `parts`.
        by_fold: Class of each row of each fold.
        classes: Number of classes.
        balanced: Whether every class counts equally.
    """

    parts: Sequence[int | None]
    folds: Sequence[int]
    labels: npt.NDArray[np.int64]
    by_fold: Sequence[npt.NDArray[np.int64]]
    classes: int
    balanced: bool

    def weights(self, labels: npt.NDArray[np.int64]) -> Floats:
        """Return weights of rows that sum to one."""
        if not self.balanced:
            return np.full(len(labels), 1 / max(len(labels), 1))
        return class_weights(labels, self.classes)


def class_weights(labels: npt.NDArray[np.int64], classes: int) -> Floats:
    """Return weights that sum to one, with the same sum for every class that occurs.

    Example:
        >>> class_weights(np.array([0, 0, 1]), 2).tolist()
        [0.25, 0.25, 0.5]
    """
    counts = np.bincount(labels, minlength=classes)
    out: Floats = 1 / (counts[labels] * max(int((counts > 0).sum()), 1))
    return out


def judge(arrays: Arrays, found: Mapping[Any, Result], names: Sequence[str], held: Held) -> None:
    """Add accuracy of each method on held-out rows, with its interval, and its spread."""
    rights = [[found[part, name]["right"] for part in held.parts] for name in names]
    right = np.stack([np.concatenate(one) for one in rights])
    arrays.add("right", right.astype(np.float32), "method", "judged")
    arrays.add("judged_label", held.labels, "judged")
    accuracy = right.mean(axis=1)
    arrays.add("accuracy", accuracy, "method")
    low, high = wilson(accuracy, right.shape[1])
    arrays.add("accuracy_low", low, "method")
    arrays.add("accuracy_high", high, "method")
    each = right @ class_weights(held.labels, held.classes)
    arrays.add("balanced_accuracy", each, "method")
    arrays.add("judged_rows", right.shape[1])
    counts = np.bincount(held.labels, minlength=held.classes)
    arrays.add("baseline", 1 / held.classes if held.balanced else counts.max() / counts.sum())
    if held.parts != [None]:
        by_fold = np.array([[one.mean() for one in folds] for folds in rights])
        arrays.add("fold_accuracy", by_fold, "method", "fold")


def stop(arrays: Arrays, found: Mapping[Any, Result], held: Held) -> None:
    """Add accuracy and log loss along each path, and where to stop on it.

    The stopping point has the smallest log loss on held-out rows. A fold is judged at the point
    that the other folds chose, and test rows at the point that all folds chose.
    """
    names = arrays.coordinates["path"]
    weights = held.weights(held.labels)
    many, shape = len(held.labels), (len(names), STEPS)
    values = {key: np.empty(shape) for key in ("path_accuracy", "path_loss")}
    right, loss, sure = (np.empty((len(names), 2, many)) for _ in range(3))
    steps = np.empty(len(names), dtype=np.int64)
    for k, name in enumerate(names):
        losses = _losses(found, name, held)
        paths = [_coupled(found[part, name], _others(losses, part)) for part in held.parts]
        whole = {key: np.concatenate([path[key] for path in paths], axis=1) for key in paths[0]}
        values["path_accuracy"][k] = whole["right"] @ weights
        values["path_loss"][k] = whole["loss"] @ weights
        chosen, steps[k] = _chosen(losses, held)
        at = np.arange(many)
        for out, key in ((right, "right"), (loss, "loss"), (sure, "sure")):
            out[k, 0], out[k, 1] = whole[key][chosen, at], whole[key][-1]
    for key, value in values.items():
        arrays.add(key, value, "path", "step")
    arrays.add("stop_step", steps, "path")
    arrays.add("stop_right", right[:, 0].astype(np.float32), "path", "judged")
    accuracy = right[:, 0].mean(axis=1)
    low, high = wilson(accuracy, many)
    each = right[:, 0] @ class_weights(held.labels, held.classes)
    for key, value in (("", accuracy), ("_low", low), ("_high", high), ("_balanced", each)):
        arrays.add(f"stop_accuracy{key}", value, "path")
    arrays.add("stop_loss", loss[:, 0] @ weights, "path")
    arrays.add("end_loss", loss[:, 1] @ weights, "path")
    _calibrate(arrays, right, sure)


def _losses(found: Mapping[Any, Result], name: str, held: Held) -> Floats:
    """Return the mean loss on each fold, `(folds, couplings, steps)`."""
    each = [
        found[fold, name]["path_loss"] @ held.weights(labels)
        for fold, labels in zip(held.folds, held.by_fold, strict=True)
    ]
    return np.stack(each) if each else np.zeros((0, 1, STEPS))


def _others(losses: Floats, part: int | None) -> Floats:
    """Return the sum of losses on all folds but the one that is judged."""
    found: Floats = (losses if part is None else np.delete(losses, part, axis=0)).sum(axis=0)
    return found


def _coupled(fit: Result, others: Floats) -> dict[str, Floats]:
    """Return what a path says of its held-out rows, at each step by the other folds' coupling."""
    best, steps = others.argmin(axis=0), np.arange(STEPS)
    chosen = {key: fit[f"path_{key}"][best, steps] for key in ("loss", "sure")}
    return {"right": fit["path_right"], **chosen}


def _chosen(losses: Floats, held: Held) -> tuple[npt.NDArray[np.int64], int]:
    """Return the step at which each judged row is judged, and the step that all folds choose."""
    if not held.folds:
        return np.full(len(held.labels), STEPS - 1), STEPS - 1
    best = int(_others(losses, None).min(axis=0).argmin())
    if held.parts == [None]:
        return np.full(len(held.labels), best), best
    others = [int(_others(losses, k).min(axis=0).argmin()) for k in range(len(losses))]
    many = [len(labels) for labels in held.by_fold]
    return np.repeat(others, many), best


def _calibrate(arrays: Arrays, right: Floats, sure: Floats) -> None:
    """Add, for groups of rows by probability, the mean probability and the share that is right.

    `calibration_error` is the mean gap between the two, weighted by the groups' sizes.
    """
    names, (_, _, many) = arrays.coordinates["path"], right.shape
    groups = min(BINS, max(1, many // 10))
    told, seen = (np.full((len(names), 2, BINS), math.nan) for _ in range(2))
    error = np.empty((len(names), 2))
    for place in np.ndindex(error.shape):
        order = np.argsort(sure[place], kind="stable")
        gaps = 0.0
        for group, rows in enumerate(np.array_split(order, groups)):
            told[(*place, group)] = sure[place][rows].mean()
            seen[(*place, group)] = right[place][rows].mean()
            gaps += len(rows) * abs(told[(*place, group)] - seen[(*place, group)])
        error[place] = gaps / many
    arrays.add("calibration_told", told, "path", "when", "bin")
    arrays.add("calibration_seen", seen, "path", "when", "bin")
    arrays.add("calibration_error", error, "path", "when")
    arrays.add("mean_sure", sure.mean(axis=2), "path", "when")


def twin_ceiling(x: Floats, labels: npt.NDArray[np.int64]) -> float:
    """Return the best accuracy on these rows of any function of their features.

    Rows with equal features and different labels cannot all be right.

    Example:
        >>> twin_ceiling(np.array([[1.0], [1.0], [1.0], [2.0]]), np.array([0, 0, 1, 1]))
        0.75
    """
    groups = np.unique(x, axis=0, return_inverse=True)[1].ravel()
    counts = np.zeros((groups.max() + 1, labels.max() + 1))
    np.add.at(counts, (groups, labels), 1)
    return float(counts.max(axis=1).sum() / len(labels))


def telltale(x: Floats, labels: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Return which features separate two classes alone.

    Example:
        >>> telltale(np.array([[1.0, 1.0], [2.0, 3.0], [5.0, 2.0]]), np.array([0, 0, 1])).tolist()
        [True, False]
    """
    first, second = x[labels == 0], x[labels == 1]
    above = second.min(axis=0) > first.max(axis=0)  # never with NaN
    below = second.max(axis=0) < first.min(axis=0)
    found: npt.NDArray[np.bool_] = above | below
    return found


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
