"""The distribution of each contestant's settings, and how trials are drawn from it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from scipy.stats import qmc

from natgrad.experiments.race.config import KFAC, PUBLISHED, TUNED
from natgrad.experiments.race.training import Settings

__all__ = ["Bounds", "Space", "Tried", "space"]

Bounds = tuple[float, float]
"""The ends of an interval."""

Tried = tuple[Settings, float]
"""The settings of a trial, and its score."""

T = TypeVar("T")
_BEYOND = 2.5  # factor on the best rate if no lower (or higher) one was tried


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
        momenta: Weights of the past in averages of gradients; empty keeps the first's.
        heads: Whether Muon orthogonalizes the head; empty keeps the first's.
    """

    first: Settings
    lr: Bounds | None = None
    damping: Bounds | None = None
    batches: tuple[int, ...]
    horizons: tuple[float, ...] = (0.0,)
    averages: tuple[float | None, ...] = (None,)
    momenta: tuple[float, ...] = ()
    heads: tuple[bool, ...] = ()

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
        points = qmc.LatinHypercube(d=7, rng=np.random.default_rng(seed)).random(trials - 1)
        return [self.first, *(self._at(point) for point in points)]

    def refine(self, tried: Sequence[Tried]) -> Settings:
        """Return the settings of the next trial: those of the best, at another rate.

        If the best rate is the lowest or highest that was tried, the next is beyond it: the
        interval widens. Otherwise it lies between the best and the better of its neighbors.
        Without a rate, it is another draw.

        Example:
            >>> first = Settings(lr=0.1, batch=10)
            >>> space = Space(first=first, lr=(0.01, 1.0), batches=(10,))
            >>> other = Settings(lr=0.4, batch=10)
            >>> space.refine([(first, 2.0), (other, 1.0)]).lr
            1.0
            >>> space.refine([(first, 2.0), (other, 1.0), (Settings(lr=0.9, batch=10), 1.5)]).lr
            0.6
        """
        best, _ = min(tried, key=lambda each: each[1])
        rates: dict[float, float] = {}  # the best score at each rate
        for settings, score in tried:
            if settings.lr is not None:
                rates[settings.lr] = min(score, rates.get(settings.lr, math.inf))
        if self.lr is None or best.lr is None:
            return self.draw(2, seed=len(tried))[1]
        lower = [rate for rate in rates if rate < best.lr]
        higher = [rate for rate in rates if rate > best.lr]
        if not lower or not higher:
            rate = best.lr * _BEYOND if not higher else best.lr / _BEYOND
        else:
            near = min(max(lower), min(higher), key=rates.__getitem__)
            rate = math.sqrt(best.lr * near)
        return replace(best, lr=float(f"{rate:.3g}"))

    def _at(self, point: np.ndarray) -> Settings:
        lr, batch, horizon, damping, average, momentum, head = point.tolist()
        return replace(
            self.first,
            lr=self.first.lr if self.lr is None else _between(self.lr, lr),
            damping=self.first.damping if self.damping is None else _between(self.damping, damping),
            batch=self.batches[int(batch * len(self.batches))],
            horizon=self.horizons[int(horizon * len(self.horizons))],
            average=self.averages[int(average * len(self.averages))],
            momentum=_pick(self.momenta, momentum, self.first.momentum),
            head=_pick(self.heads, head, self.first.head),
        )


def _between(bounds: Bounds, at: float) -> float:
    """Return the point of an interval, on a logarithmic scale, to three digits."""
    low, high = bounds
    return float(f"{low * (high / low) ** at:.3g}")


def _pick(values: tuple[T, ...], at: float, otherwise: T | None) -> T | None:
    return values[int(at * len(values))] if values else otherwise


_SMALL = ("SGD", "AdamW")  # steps are cheap: small batches are efficient
_HORIZONS = (0.0, 0.5, 1.0)
_AVERAGES = (None, 6.0)
_MOMENTA: dict[str, tuple[float, ...]] = {
    "SGD": (0.0, 0.8, 0.9, 0.95),
    "AdamW": (0.8, 0.9, 0.95),
    "Muon": (0.8, 0.9, 0.95),
    "SOAP": (0.8, 0.9, 0.95),
    "Shampoo": (0.8, 0.9, 0.95),
    TUNED: (0.7, 0.8, 0.9),
}
# About a decade around values that are known to work; those of SGD depend on the loss's scale.
_RATES: dict[str, Bounds] = {
    "AdamW": (5e-4, 8e-3),
    "Muon": (0.01, 0.1),
    "SOAP": (1e-3, 1e-2),
    "Shampoo": (1e-4, 2e-3),
    PUBLISHED: (0.5, 2.0),
}
_PLAIN_RATES: dict[str, Bounds] = {
    "autoencoder": (1e-3, 1e-2),
    "classifier": (0.01, 0.3),
    "transformer": (0.05, 1.0),
    "table": (5e-3, 0.2),
    "digits": (5e-3, 0.1),
    "residual": (0.01, 0.3),
    "tied": (0.05, 1.0),
    "picture": (1e-4, 5e-3),
    "vae": (1e-3, 2e-2),
    "noisy": (5e-3, 0.2),
    "recurrent": (0.1, 3.0),
}


def space(contestant: str, problem: str, batches: tuple[int, ...]) -> Space:
    """Return where a contestant's settings are drawn from.

    Args:
        contestant: One of `CONTESTANTS`.
        problem: The problem's name.
        batches: Its four batch sizes. SGD and AdamW choose among the smaller three, the others
            among the larger three, and begin with the middle one.

    Example:
        >>> space("NGD tuned", "table", (16, 32, 64, 264)).first == Settings(batch=64)
        True
    """
    sizes = batches[:3] if contestant in _SMALL else batches[1:]
    if contestant == KFAC:
        first = Settings(batch=sizes[1], damping=1.0)
        return Space(first=first, batches=sizes, damping=(0.03, 30.0))
    if contestant == PUBLISHED:
        first = Settings(lr=1.0, batch=sizes[1], damping=0.1)
        return Space(first=first, lr=_RATES[PUBLISHED], damping=(0.03, 1.0), batches=sizes)
    if contestant == TUNED:
        # The first trial has default settings. There is no rate to tune.
        return Space(first=Settings(batch=sizes[1]), batches=sizes, momenta=_MOMENTA[TUNED])
    rates = _PLAIN_RATES[problem] if contestant == "SGD" else _RATES[contestant]
    middle = float(f"{math.sqrt(rates[0] * rates[1]):.3g}")
    muon = contestant == "Muon"
    first = Settings(
        lr=middle,
        batch=sizes[1],
        horizon=_HORIZONS[-1],
        momentum=_MOMENTA[contestant][-2],
        head=False if muon else None,
    )
    return Space(
        first=first,
        lr=rates,
        batches=sizes,
        horizons=_HORIZONS,
        averages=_AVERAGES,
        momenta=_MOMENTA[contestant],
        heads=(False, True) if muon else (),
    )
