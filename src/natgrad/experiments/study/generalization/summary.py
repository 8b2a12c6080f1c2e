"""What the study's arrays say: advantages, the share of them that is kept, and its price."""

from collections.abc import Sequence
from dataclasses import dataclass

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


def kept(arrays: Arrays, problem: int, method: str) -> float:
    """Return the share of EGD's advantage over exact NGD that a method keeps, in log error."""
    whole = advantage(arrays, problem).value
    return 1 - advantage(arrays, problem, method).value / whole


def price(arrays: Arrays, problem: int, method: str) -> float:
    """Return the median over seeds of the method's steps relative to EGD's."""
    names = arrays.coordinates["method"]
    steps, errors = arrays["steps"][problem], arrays["error"][problem]
    mine, base = names.index(method), names.index("EGD")
    both = np.isfinite(errors[mine]) & np.isfinite(errors[base])
    ratios = steps[mine, both] / steps[base, both]
    return float(np.median(ratios)) if both.any() else float("nan")


def typical(arrays: Arrays, problems: Sequence[int], method: str) -> tuple[float, float]:
    """Return error and steps of a method relative to EGD's: a geometric mean, and a median.

    Both are over the problems to which the method applies; NaN if there are none.
    """
    errors = [advantage(arrays, i, method).value for i in problems]
    known = [(error, price(arrays, i, method)) for i, error in zip(problems, errors, strict=True)]
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


def _bootstrap(values: Floats) -> Interval:
    """Return the mean with an interval from resampled seeds; NaN are left out."""
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return Interval(float("nan"), float("nan"), float("nan"))
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(_RESAMPLES, len(values)))].mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(values.mean()), float(low), float(high))
