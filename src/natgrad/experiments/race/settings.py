"""What is tuned, within which bounds, and how trials are drawn."""

import math
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import qmc

Bounds = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One contestant's settings in one run.

    Attributes:
        lr: Learning rate; of NGD the factor on its step length. None where the method has its own.
        batch: Rows of a batch.
        horizon: The part of the budget in which a cosine takes the rate down to a hundredth; 0 for
            a constant rate.
        damping: Damping at the start, for those who have one to set.
        average: Exponent of NGD's average of the weights; None for the last weights.
    """

    lr: float | None
    batch: int
    horizon: float = 0.0
    damping: float | None = None
    average: float | None = None

    def rate(self, part: float) -> float:
        """Return the factor on the rate after this part of the budget.

        Example:
            >>> settings = Settings(lr=1.0, batch=10, horizon=0.5)
            >>> [round(settings.rate(part), 2) for part in (0.0, 0.25, 0.9)]
            [1.0, 0.5, 0.01]
        """
        if not self.horizon:
            return 1.0
        return max(0.01, 0.5 * (1 + math.cos(math.pi * min(1.0, part / self.horizon))))


@dataclass(frozen=True, kw_only=True)
class Space:
    """Where settings are drawn from: intervals on a logarithmic scale, lists with equal chances.

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
