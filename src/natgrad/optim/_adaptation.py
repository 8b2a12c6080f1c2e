"""λ from step to step, and whether the inverses still fit."""

from collections.abc import Mapping
from typing import Any

from natgrad.optim._states import real
from natgrad.optim.damping import Damping
from natgrad.optim.statistics import StepStatistics

# Part of the share at the last refresh below which the inverses no longer fit the batch, and are
# renewed out of turn.
_STALE = 0.2

# How often one judgement changes the damping at most, for steps that passed without one; and how
# often a step that was undone does, so that few in a row are lost.
_REPEATS, _UNDONE = 2, 4


class Adaptation:
    """Follows the damping rule.

    The rule is asked with the *average* share αL since the last refresh, because inverses that have
    grown old understate the curvature more than fresh ones do, and less so under more damping. λ
    acts on lengths at once, and on inverses at their next refresh.

    Args:
        rule: The rule.

    Attributes:
        value: λ.
    """

    def __init__(self, rule: Damping) -> None:
        self.rule = rule
        self.value: float = rule.start
        self._fresh = 0.0  # share at the last refresh
        self._sum = 0.0  # of shares since

    def adapt(
        self, ratio: float | None, stats: StepStatistics, *, since: int, depth: int, scale: float
    ) -> bool:
        """Set λ for the next step, and return whether the inverses are stale.

        Args:
            ratio: ρ, if it is known.
            stats: Of the step.
            since: Steps since the last refresh, this one included.
            depth: L.
            scale: The Fisher's.
        """
        self._sum += stats.share
        steps = max(1, since)
        share = self._sum / steps
        repeats = _UNDONE if stats.rejected else min(_REPEATS, steps) if stats.refreshed else 1
        for _ in range(repeats):
            self.value = self.rule.after(
                stats.step, self.value, ratio=ratio, alpha=share / depth, share=share, scale=scale
            )
        if stats.refreshed:
            self._fresh, self._sum = stats.share, 0.0
        return stats.rejected or stats.share < _STALE * self._fresh

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers."""
        return {"damping": self.value, "fresh_share": self._fresh, "share_sum": self._sum}

    @staticmethod
    def check_state(state: Mapping[str, Any], where: str) -> None:
        """Raise unless the numbers in a state can be loaded."""
        real(state["damping"], f"{where}.damping", low=0)
        for name in ("fresh_share", "share_sum"):
            real(state[name], f"{where}.{name}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checked state."""
        self.value = state["damping"]
        self._fresh, self._sum = state["fresh_share"], state["share_sum"]
