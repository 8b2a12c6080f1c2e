"""How fast a quantity falls, with an interval."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, get_args

import torch
from torch import Tensor

from natgrad._checks import choice, integer, tensor
from natgrad._named import named
from natgrad.errors import InvalidInputError, ShapeError
from natgrad.linalg._precision import widen

Law = Literal["power", "exponential", "logarithmic"]
"""C t^{−r}, C e^{−rt} or C (log t)^{−r}."""


@dataclass(frozen=True)
class Rate:
    """A fitted law and how sure it is.

    Attributes:
        law: `"power"`, `"exponential"` or `"logarithmic"`.
        exponent: r, the mean of the slopes of the windows.
        low: Lower end of the 95 % interval of r.
        high: Upper end.
        drift: Slope of the last window minus that of the first: a law has little.
        windows: How many windows were used.

    Example:
        >>> from natgrad.diagnostics import fit_rate
        >>> t = torch.logspace(0, 4, 50, dtype=torch.float64)
        >>> rate = fit_rate(t, 3 * t**-0.5)
        >>> round(rate.exponent, 6), rate.low <= 0.5 + 1e-9
        (0.5, True)
    """

    law: Law
    exponent: float
    low: float
    high: float
    drift: float
    windows: int


@named
def fit_rate(t: Tensor, gap: Tensor, *, law: Law = "power", windows: int = 5) -> Rate:
    """Return the exponent of the law that a quantity follows, with a 95 % interval.

    Saved points of one run are not independent, so least squares over all of them would claim far
    too much. Instead the clock of the law (log t, t or log log t) is divided into equal windows,
    each gives its own slope, and the interval is Student's for the mean of these. A quantity that
    follows no such law has slopes that drift, and an interval that says so.

    Args:
        t: Times, increasing, shape `(n,)`; positive for a power, above one for a logarithm.
        gap: What falls, e.g. an angle to the limit, positive, shape `(n,)`.
        law: `"power"` (default), `"exponential"` or `"logarithmic"`.
        windows: How many windows, at least 3; each needs two points.

    Example:
        >>> t = torch.linspace(0, 10, 40, dtype=torch.float64)
        >>> round(fit_rate(t, torch.exp(-2 * t), law="exponential").exponent, 6)
        2.0
    """
    law = choice(law, "law", get_args(Law))
    windows = integer(windows, "windows", low=3)
    times = widen(tensor(t, "t", shape=("n",)))
    values = widen(tensor(gap, "gap", shape=(len(times),)))
    if not bool((values > 0).all()):
        raise InvalidInputError("gap must be positive everywhere; leave out zeros at the end.")
    lowest = {"power": 0.0, "logarithmic": 1.0, "exponential": -math.inf}[law]
    if float(times.min()) <= lowest or not bool((times.diff() > 0).all()):
        raise InvalidInputError(f"t must increase and be above {lowest:g} for a {law} law.")
    clock = times if law == "exponential" else times.log()
    clock = clock.log() if law == "logarithmic" else clock
    slopes = _slopes(clock, values.log(), windows)
    mean, spread = float(slopes.mean()), float(slopes.std())
    from scipy.special import stdtrit  # here, to keep `import natgrad` light

    reach = float(stdtrit(windows - 1, 0.975)) * spread / windows**0.5
    drift = float(slopes[-1] - slopes[0])
    return Rate(law, mean, mean - reach, mean + reach, drift, windows)


def _slopes(clock: Tensor, logs: Tensor, windows: int) -> Tensor:
    """Return minus the least-squares slope of each window."""
    edges = torch.linspace(float(clock[0]), float(clock[-1]), windows + 1, dtype=clock.dtype)
    found = []
    for low, high in pairwise(edges):
        inside = (clock >= low) & (clock <= high)
        if int(inside.sum()) < 2:
            raise ShapeError(
                f"each of {windows} windows needs two points, but one has {int(inside.sum())}. "
                "Save more states, spaced evenly in the law's clock, or ask for fewer windows."
            )
        u, v = clock[inside], logs[inside]
        u = u - u.mean()
        found.append(-(u * v).sum() / (u * u).sum())
    return torch.stack(found)
