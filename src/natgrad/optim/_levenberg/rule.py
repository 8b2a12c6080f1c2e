"""Adaptation of the damping from step to step."""

from collections.abc import Mapping
from typing import Any

from natgrad.optim._states import entries, real

__all__ = ["Nielsen"]

# λ beyond these is numerically infinite or zero in units of the metric.
_CEILING = 1e30
_FLOOR = 1e-20


class Nielsen:
    """Nielsen's rule: λ falls smoothly with ρ, and grows faster with each rejected step in a row.

    After an accepted step λ is multiplied by max(⅓, 1 − (2ρ − 1)³); after rejected ones by 2, 4,
    8 and so on (Madsen, Nielsen and Tingleff 2004, Methods for Non-Linear Least Squares
    Problems, §3.2). The bend of the path grows at most as 1/λ, so λ does not fall below the value
    at which the bend of an accepted step could pass its limit; otherwise the next step would only
    raise it again.
    """

    def __init__(self, start: float | None = None) -> None:
        self.value, self.growth = start, 2.0

    def accepted(self, ratio: float, bend: float) -> None:
        """Lower or raise λ after a step.

        Args:
            ratio: ρ, its actual over its predicted decrease.
            bend: Its acceleration as a fraction of the largest one that is tried.
        """
        assert self.value is not None
        factor = max(1 / 3, 1 - (2 * min(ratio, 1.0) - 1) ** 3, min(bend, 1.0))
        self.value, self.growth = max(self.value * factor, _FLOOR), 2.0

    def rejected(self) -> None:
        """Raise λ."""
        assert self.value is not None
        self.value = min(self.value * self.growth, _CEILING)
        self.growth = min(2 * self.growth, _CEILING)

    def state_dict(self) -> dict[str, float | None]:
        """Return both numbers."""
        return {"damping": self.value, "growth": self.growth}

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the state can be loaded."""
        found = entries(state, where, ("damping", "growth"))
        if found["damping"] is not None:
            real(found["damping"], f"{where}.damping", low=0, low_open=True)
        real(found["growth"], f"{where}.growth", low=2)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take both numbers."""
        self.value, self.growth = state["damping"], float(state["growth"])
