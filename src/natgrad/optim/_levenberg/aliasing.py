"""A check whether the points of a fit still represent the whole domain."""

from collections.abc import Mapping
from typing import Any

from natgrad._checks import integer
from natgrad.optim._states import entries, real

__all__ = ["AliasingWarning", "Watch"]

# Steps between evaluations of held-out points.
EVERY = 10
# Above this ratio of the held-out to the fitted loss, the fit holds only at its points.
_RATIO = 100.0
# Held-out losses below this fraction of the first one never cause a warning.
_SMALL = 1e-4
# Held-out losses that fall below this fraction of the last one are still falling with the fit.
_FALLING = 0.5
# Number of comparisons in a row that must agree before the warning.
_ROW = 2


class AliasingWarning(UserWarning):
    """Residuals vanish at the points of the fit but not between them."""


class Watch:
    """Compares the loss on held-out points with the loss of the fit."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.last = float("inf")
        self.row = 0
        self.warned = False

    def due(self, step: int) -> bool:
        """Return whether held-out points are evaluated at this step, counted from 1."""
        return step % EVERY == 1

    def message(self, loss: float, held_out: float) -> str | None:
        """Return the warning for these losses, once; else None."""
        self.first = held_out if self.first is None else self.first
        apart = held_out > _RATIO * loss and held_out > _SMALL * self.first
        falling = held_out < _FALLING * self.last
        self.row, self.last = (self.row + 1 if apart and not falling else 0), held_out
        if self.row < _ROW or self.warned:
            return None
        self.warned = True
        return (
            f"the loss is {loss:.1e} on the points of the fit but {held_out:.1e} on the held-out "
            "ones: the network bends between its points, and the second number measures its true "
            "error. Use more points, or let resample= draw new ones as the fit goes on."
        )

    def state_dict(self) -> dict[str, float | int | bool | None]:
        """Return what the comparison remembers."""
        return {"first": self.first, "last": self.last, "row": self.row, "warned": self.warned}

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the state can be loaded."""
        found = entries(state, where, ("first", "last", "row", "warned"))
        integer(found["row"], f"{where}.row", low=0)
        if found["first"] is not None:
            real(found["first"], f"{where}.first", low=0)
        real(found["last"], f"{where}.last", low=0, infinite=True)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a state."""
        self.first, self.last, self.row = state["first"], state["last"], int(state["row"])
        self.warned = bool(state["warned"])
