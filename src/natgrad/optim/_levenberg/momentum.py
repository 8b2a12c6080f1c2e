"""The last step as the center of the next damping: SPRING's momentum, by an adaptive share."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from natgrad._checks import tensor
from natgrad.optim._states import entries, real

__all__ = ["Momentum"]

# Factors of the share: after a step that was rejected or computed again without momentum, and
# after a good one. While the loss falls fast it grows slowly, because a share that is too large
# costs rejected steps. On a plateau, where momentum is needed most, λ is as often the reason for a
# rejected step, and two good ones make up for it.
_FALL = 0.5
_RISE = 1.1
_RISE_ON_PLATEAU = 1.5
# Relative decreases of the loss below this are those of a plateau.
_PLATEAU = 0.05
# Steps with ρ above this are good.
_GOOD = 0.25


class Momentum:
    """μ · share · p, with p the last accepted step and a share in (0, 1] that adapts.

    Each step first calls `offered`. It calls `dropped` if it goes on without momentum, or is
    rejected, and `accepted` if its weights are kept.

    Args:
        factor: μ; 0 switches momentum off.
    """

    def __init__(self, factor: float) -> None:
        self.factor, self.share = factor, 1.0
        self.last: Tensor | None = None
        self._used = False

    def offered(self) -> Tensor | None:
        """Return the center of the damping; None if it is zero. Note that it is used."""
        self._used = self.last is not None
        return None if self.last is None else self.factor * self.share * self.last

    def dropped(self) -> None:
        """Lower the share, once, if the present step was offered a momentum."""
        if self._used:
            self.share, self._used = _FALL * self.share, False

    def accepted(self, step: Tensor, ratio: float, decrease: float) -> None:
        """Keep a step for the next one; raise the share if momentum led to it.

        Args:
            step: The step.
            ratio: Its ρ.
            decrease: Decrease of the loss, relative.
        """
        if self._used and ratio > _GOOD:
            rise = _RISE_ON_PLATEAU if decrease < _PLATEAU else _RISE
            self.share = min(1.0, rise * self.share)
        self.last = step if self.factor else None

    def state_dict(self) -> dict[str, Any]:
        """Return the share and the last step."""
        return {"share": self.share, "last": None if self.last is None else self.last.clone()}

    def check_state(self, state: Any, where: str, count: int) -> None:
        """Raise unless the state can be loaded."""
        found = entries(state, where, ("share", "last"))
        real(found["share"], f"{where}.share", low=0, high=1)
        if found["last"] is not None:
            tensor(found["last"], f"{where}.last", shape=(count,))

    def load_state_dict(self, state: Mapping[str, Any], like: Tensor) -> None:
        """Take a state, as tensors like the given one."""
        self.share = float(state["share"])
        last = state["last"]
        self.last = None if last is None else last.detach().clone().to(like)
