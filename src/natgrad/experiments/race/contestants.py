"""The distribution of each contestant's settings, and how trials are drawn from it."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import qmc

from natgrad.experiments.race.config import DEFAULT, KFAC, PUBLISHED
from natgrad.experiments.race.training import Settings

__all__ = ["Bounds", "Space", "space"]

Bounds = tuple[float, float]
"""The ends of an interval."""


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where settings are drawn from: intervals on a logarithmic scale, lists uniformly.

    Attributes:
        first: The settings of the first trial: the method's defaults, or the middle.
        lr: Interval of the rate; None keeps the first's.
        damping: Interval of the damping; None keeps the first's.
        batches: Batch sizes.
        horizons: Horizons of the cosine.
        averages: Averages of the weights.
    """

    first: Settings
    lr: Bounds | None = None
    damping: Bounds | None = None
    batches: tuple[int, ...]
    horizons: tuple[float, ...] = (0.0,)
    averages: tuple[float | None, ...] = (None,)

    def draw(self, trials: int, seed: int = 0) -> list[Settings]:
        """Return the settings of the trials: the first, then a Latin hypercube.

        Every contestant's hypercube has the same points.

        Example:
            >>> first = Settings(lr=0.1, batch=10)
            >>> space = Space(first=first, lr=(0.01, 1.0), batches=(10, 100))
            >>> found = space.draw(3)
            >>> found[0] == first, all(0.01 <= s.lr <= 1.0 for s in found)
            (True, True)
        """
        points = qmc.LatinHypercube(d=5, rng=np.random.default_rng(seed)).random(trials - 1)
        return [self.first, *(self._at(point) for point in points)]

    def _at(self, point: np.ndarray) -> Settings:
        lr, batch, horizon, damping, average = point.tolist()
        return replace(
            self.first,
            lr=self.first.lr if self.lr is None else _between(self.lr, lr),
            damping=self.first.damping if self.damping is None else _between(self.damping, damping),
            batch=self.batches[int(batch * len(self.batches))],
            horizon=self.horizons[int(horizon * len(self.horizons))],
            average=self.averages[int(average * len(self.averages))],
        )


def _between(bounds: Bounds, at: float) -> float:
    """Return the point of an interval, on a logarithmic scale, to three digits."""
    low, high = bounds
    return float(f"{low * (high / low) ** at:.3g}")


_SMALL = ("SGD", "Nesterov", "AdamW")  # steps are cheap: small batches are efficient
_HORIZONS = (0.0, 0.5, 1.0)
# About a decade around values that are known to work; those of SGD depend on the loss's scale.
_RATES: dict[str, Bounds] = {
    "AdamW": (5e-4, 8e-3),
    "Muon": (0.01, 0.1),
    "SOAP": (1e-3, 1e-2),
    "Shampoo": (1e-4, 2e-3),
    PUBLISHED: (0.5, 2.0),
    DEFAULT: (0.8, 1.25),  # a factor on lengths that are already best in the quadratic model
}
_PLAIN_RATES: dict[str, dict[str, Bounds]] = {
    "SGD": {
        "autoencoder": (2e-3, 1.2e-2),
        "classifier": (0.03, 0.5),
        "transformer": (0.1, 2.0),
        "table": (0.02, 0.3),
        "digits": (0.01, 0.2),
    },
    "Nesterov": {
        "autoencoder": (5e-4, 5e-3),
        "classifier": (5e-3, 0.1),
        "transformer": (0.02, 0.4),
        "table": (3e-3, 0.05),
        "digits": (2e-3, 0.04),
    },
}


def space(contestant: str, problem: str, batches: tuple[int, ...]) -> Space:
    """Return where a contestant's settings are drawn from.

    Args:
        contestant: One of `CONTESTANTS`.
        problem: The problem's name.
        batches: Its four batch sizes. SGD, Nesterov and AdamW choose among the smaller three, the
            others among the larger three, and begin with the middle one.

    Example:
        >>> space("NGD", "table", (16, 32, 64, 264)).first
        Settings(lr=1.0, batch=64, horizon=0.0, damping=None, average=None)
    """
    sizes = batches[:3] if contestant in _SMALL else batches[1:]
    if contestant == KFAC:
        first = Settings(lr=None, batch=sizes[1], damping=1.0)
        return Space(first=first, batches=sizes, damping=(0.03, 30.0))
    if contestant == PUBLISHED:
        first = Settings(lr=1.0, batch=sizes[1], damping=0.1)
        return Space(first=first, lr=_RATES[PUBLISHED], damping=(0.03, 1.0), batches=sizes)
    if contestant == DEFAULT:
        first = Settings(lr=1.0, batch=sizes[1])
        # The average comes first: on the hypercube it then coincides with small batches, which need
        # it.
        return Space(first=first, lr=_RATES[DEFAULT], batches=sizes, averages=(6.0, None))
    rates = _PLAIN_RATES.get(contestant, {}).get(problem) or _RATES[contestant]
    middle = float(f"{math.sqrt(rates[0] * rates[1]):.3g}")
    first = Settings(lr=middle, batch=sizes[1], horizon=_HORIZONS[-1])
    return Space(first=first, lr=rates, batches=sizes, horizons=_HORIZONS)
