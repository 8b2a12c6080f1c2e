"""When a curve reached its target, and ratios of these times."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Curve = npt.NDArray[Any]


def reached(at: Curve, score: Curve, target: float) -> float:
    """Return when a curve first reaches the target; NaN if it does not.

    Between two evaluations the logarithm of the score is interpolated linearly.

    Args:
        at: Seconds, or steps, of the evaluations.
        score: Scores.
        target: The target.

    Example:
        >>> reached(np.array([0.0, 1.0, 2.0]), np.array([4.0, 2.0, 0.5]), 1.0)
        1.5
        >>> reached(np.array([0.0, 1.0]), np.array([4.0, 2.0]), 1.0)
        nan
    """
    below = np.flatnonzero(score <= target)
    if not below.size:
        return math.nan
    k = int(below[0])
    if k == 0:
        return float(at[0])
    high, low = math.log(score[k - 1]), math.log(score[k])
    part = (high - math.log(target)) / (high - low)
    return float(at[k - 1] + part * (at[k] - at[k - 1]))


def rank(seconds: float, score: Curve) -> tuple[float, float]:
    """Return a key that sorts trials, best first: seconds to the target, then best score."""
    best = float(np.min(score))
    return (math.inf if math.isnan(seconds) else seconds, best)


@dataclass(frozen=True)
class Ratio:
    """A method's seconds to the target over NGD's.

    Attributes:
        value: The geometric mean over seeds.
        low: The smallest over seeds.
        high: The largest over seeds.
        bound: "" if every run reached the target; ">" if a run of the method did not, and its
            budget counts instead; "<" if a run of NGD did not; "?" if both.
        seeds: Number of seeds.
    """

    value: float
    low: float
    high: float
    bound: str
    seeds: int

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "neither reached it"
        return f"{self.bound}{' ' if self.bound else ''}{self.value:.2f}"


def ratio(other: Sequence[float], ours: Sequence[float], budget: float) -> Ratio:
    """Return the ratio of two methods' seconds to the target, seed by seed.

    Args:
        other: The other's seconds, NaN where it did not reach the target.
        ours: NGD's.
        budget: Seconds at which runs end.

    Example:
        >>> print(ratio([4.0, 9.0], [2.0, 2.0], 10.0), ratio([math.nan], [2.0], 10.0))
        3.00 > 5.00
    """
    a, b = np.asarray(other, dtype=np.float64), np.asarray(ours, dtype=np.float64)
    late, slow = np.isnan(a), np.isnan(b)
    known = ~(late & slow)
    bound = {(False, False): "", (True, False): ">", (False, True): "<", (True, True): "?"}[
        bool(late[known].any()), bool(slow[known].any())
    ]
    if not known.any():
        return Ratio(math.nan, math.nan, math.nan, "", 0)
    found = np.where(late, budget, a)[known] / np.where(slow, budget, b)[known]
    low, high = float(found.min()), float(found.max())
    middle = float(np.clip(np.exp(np.log(found).mean()), low, high))
    return Ratio(middle, low, high, bound, int(known.sum()))
