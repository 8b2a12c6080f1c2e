"""What the study's arrays say: advantages, the share of them that is kept, and its price."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from natgrad.lab.arrays import Arrays

Floats = npt.NDArray[np.float64]

_RESAMPLES = 2000


@dataclass(frozen=True)
class Interval:
    """An estimate with a 95 % interval.

    Attributes:
        value: The estimate.
        low: Lower end.
        high: Upper end.
    """

    value: float
    low: float
    high: float


def advantage(arrays: Arrays, problem: int, method: str = "exact NGD") -> Interval:
    """Return log(error of a method / error of EGD), averaged over seeds: above 0, EGD is better.

    The pairs are the seeds on which both arrive.
    """
    mine, base = _errors(arrays, problem, method), _errors(arrays, problem, "EGD")
    return _bootstrap(np.log(mine / base))


def kept(arrays: Arrays, problem: int, method: str) -> Interval:
    """Return the share of EGD's advantage over exact NGD that a method keeps, in log error.

    The seeds are those on which all three arrive.
    """
    return pooled(arrays, [problem], method)


def pooled(arrays: Arrays, problems: Sequence[int], method: str) -> Interval:
    """Return the share of EGD's advantage that a method keeps on several problems together.

    It is 1 − Σ log(error / EGD's) / Σ log(exact NGD's / EGD's), with sums over problems of means
    over seeds. Seeds are resampled within each problem.
    """
    rng, own, whole = np.random.default_rng(0), np.zeros(_RESAMPLES + 1), np.zeros(_RESAMPLES + 1)
    for problem in problems:
        base, exact, mine = (_errors(arrays, problem, m) for m in ("EGD", "exact NGD", method))
        pairs = np.log(np.stack([mine / base, exact / base]))
        pairs = pairs[:, np.isfinite(pairs).all(0)]
        count = pairs.shape[1]
        if count == 0:
            return Interval(float("nan"), float("nan"), float("nan"))
        chosen = rng.integers(count, size=(_RESAMPLES, count))
        means = np.concatenate([pairs.mean(1)[:, None], pairs[:, chosen].mean(2)], axis=1)
        own, whole = own + means[0], whole + means[1]
    return _interval(1 - own / whole) if problems else _interval(whole * np.nan)


def price(arrays: Arrays, problem: int, method: str) -> Interval:
    """Return the median over seeds of the method's steps relative to EGD's."""
    names = arrays.coordinates["method"]
    steps, errors = arrays["steps"][problem], arrays["error"][problem]
    mine, base = names.index(method), names.index("EGD")
    both = np.isfinite(errors[mine]) & np.isfinite(errors[base])
    return _bootstrap(steps[mine, both] / steps[base, both], np.median)


def absent(arrays: Arrays, problem: int, method: str) -> bool:
    """Return whether a method does not apply to a problem."""
    at = arrays.coordinates["method"].index(method)
    return not np.isfinite(arrays["steps"][problem, at]).any()


def arrivals(arrays: Arrays, problem: int, method: str) -> int:
    """Return the number of seeds on which a method reaches the training loss."""
    return int(np.isfinite(_errors(arrays, problem, method)).sum())


def typical(arrays: Arrays, problems: Sequence[int], method: str) -> tuple[float, float]:
    """Return error and steps of a method relative to EGD's: a geometric mean, and a median.

    Both are over the problems to which the method applies; NaN if there are none.
    """
    errors = [advantage(arrays, i, method).value for i in problems]
    prices = [price(arrays, i, method).value for i in problems]
    known = list(zip(errors, prices, strict=True))
    known = [pair for pair in known if np.isfinite(pair).all()]
    if not known:
        return float("nan"), float("nan")
    found = np.array(known)
    return float(np.exp(found[:, 0].mean())), float(np.median(found[:, 1]))


def decided(arrays: Arrays) -> list[int]:
    """Return the problems where EGD is better than exact NGD beyond chance."""
    count = len(arrays.coordinates["problem"])
    return [i for i in range(count) if advantage(arrays, i).low > 0]


def arrived(arrays: Arrays) -> float:
    """Return the share of runs, among methods that apply, that reach the training loss."""
    ran = np.isfinite(arrays["steps"])
    return float(np.isfinite(arrays["error"])[ran].mean())


def _errors(arrays: Arrays, problem: int, method: str) -> Floats:
    errors: Floats = arrays["error"][problem, arrays.coordinates["method"].index(method)]
    return errors


def _bootstrap(values: Floats, center: Callable[..., Any] = np.mean) -> Interval:
    """Return the center of values with an interval from resampled seeds; NaN are left out."""
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(0)
    found = center(values[rng.integers(len(values), size=(_RESAMPLES, len(values)))], axis=1)
    return _interval(np.concatenate([[center(values)], found]))


def _interval(values: Floats) -> Interval:
    """Return the first value with the 95 % interval of the others, its resamples."""
    low, high = np.quantile(values[1:], (0.025, 0.975))
    return Interval(float(values[0]), float(low), float(high))
