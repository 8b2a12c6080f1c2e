"""Where paths end: angles, tight rows, and the margins they are compared with."""

from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from natgrad.flows._by_length import Vector
from natgrad.limits import max_margin
from natgrad.linalg.norms import Metric


def degrees(a: Any, b: Any) -> float:
    """Return the angle between two vectors, accurate also where it is tiny.

    Example:
        >>> degrees(np.array([1.0, 0.0]), np.array([2.0, 2.0]))
        45.0
    """
    a, b = a / np.linalg.norm(a), b / np.linalg.norm(b)
    found = 2 * np.arctan2(np.linalg.norm(a - b), np.linalg.norm(a + b))
    return float(np.degrees(found))


def tight(rows: Vector, b: Vector, within: float = 1e-3) -> npt.NDArray[np.bool_]:
    """Return which rows have a margin within a share of the smallest.

    Example:
        >>> tight(np.array([[1.0], [3.0]]), np.ones(1)).tolist()
        [True, False]
    """
    u = rows @ b
    found: npt.NDArray[np.bool_] = u <= u.min() * (1 + within)
    return found


def face(rows: Vector, chosen: npt.NDArray[np.bool_]) -> Vector:
    """Return X_T⁺1: the shortest b with margins of one on the chosen rows.

    Example:
        >>> face(np.array([[2.0, 0.0], [5.0, 1.0]]), np.array([True, False])).tolist()
        [0.5, 0.0]
    """
    found = np.linalg.lstsq(rows[chosen], np.ones(int(chosen.sum())), rcond=None)[0]
    return np.asarray(found, dtype=np.float64)


def metric_margin(rows: Vector, metric: Any) -> Any:
    """Return the max margin in the norm bᵀMb, with its certificate."""
    x = torch.from_numpy(np.ascontiguousarray(rows))
    ones = torch.ones(len(x), dtype=x.dtype)
    return max_margin(x, ones, Metric(torch.from_numpy(metric)))
