"""The time variable of an integrator."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class LinearClock:
    """τ = t − t₀."""

    start: float = 0.0

    def t(self, tau: float) -> float:
        """Return t."""
        return self.start + tau

    def tau(self, t: float) -> float:
        """Return τ."""
        return t - self.start

    def rate(self, tau: float) -> float:
        """Return dt/dτ."""
        return 1.0


class LogClock(LinearClock):
    """τ = log (1 + t)/(1 + t₀)."""

    def t(self, tau: float) -> float:
        """Return t."""
        return self.start + (1 + self.start) * math.expm1(tau)

    def tau(self, t: float) -> float:
        """Return τ."""
        return math.log1p((t - self.start) / (1 + self.start))

    def rate(self, tau: float) -> float:
        """Return dt/dτ = 1 + t."""
        return (1 + self.start) * math.exp(tau)
