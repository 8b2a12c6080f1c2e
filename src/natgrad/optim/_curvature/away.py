"""Blocks that another process holds: the state of an optimizer divided among processes."""

from collections.abc import Mapping
from typing import Any

from natgrad.optim._capture.batch import Batch, Call
from natgrad.optim._curvature.kronecker import KroneckerBlock
from natgrad.optim._curvature.plain import DiagonalBlock


class AwayBlock:
    """A block of which this process holds two numbers: its owner has factors and inverses.

    Every process sends its moments to the owner, and receives the direction.

    Args:
        block: The block, empty; it stays so.

    Attributes:
        known: Whether the owner has factors.
        ready: Whether the owner has inverses.
        settled: Whether the error factor will never change.
        mean: The block's mean eigenvalue at the last refresh.
        unit: Factor on the damping at the last refresh.
    """

    def __init__(self, block: KroneckerBlock | DiagonalBlock) -> None:
        self.block, self.layer = block, block.layer
        self.known = self.ready = self.settled = False
        self.mean, self.unit = 0.0, 1.0

    def wants(self, call: Call) -> bool:
        """Return whether a call has moments of this layer."""
        return self.block.wants(call)

    def update(self, batch: Batch, owner: int | None = None) -> None:
        """Send the moments of a batch to the owner."""
        found = self.block.gathered(batch, owner)
        self.known = True
        self.settled = isinstance(found, tuple) and found[2]

    def state_dict(self) -> dict[str, Any]:
        """Return that of an empty block, with the numbers."""
        return self.block.state_dict() | {"mean": self.mean, "unit": self.unit}

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the owner can load the state."""
        self.block.check_state(state, where)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the numbers of a checked state."""
        self.mean, self.unit = state["mean"], state["unit"]
        if isinstance(self.block, DiagonalBlock):
            self.known = self.ready = state["squares"]["version"] > 0
        else:
            self.known = state["inputs"]["version"] > 0
            self.ready = state["right"]["kind"] != ""
            self.settled = state["errors"]["constant"]


def divided(sizes: Mapping[str, int], processes: int) -> dict[str, int]:
    """Return the owner of every block: the largest first, each to the process that has least.

    Example:
        >>> divided({"a": 3, "b": 5, "c": 3}, 2)
        {'b': 0, 'a': 1, 'c': 1}
    """
    loads, owners = [0] * processes, {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        owner = loads.index(min(loads))
        loads[owner] += sizes[name]
        owners[name] = owner
    return owners
