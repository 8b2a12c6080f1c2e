"""Observed entries of a matrix."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Entries:
    """Observed entries of a matrix.

    Attributes:
        shape: Rows and columns.
        positions: Row and column of each entry, each pair once, shape `(n, 2)`.
        values: Values, float64, shape `(n,)`.

    Example:
        >>> entries = Entries((2, 2), torch.tensor([[0, 0], [1, 1]]), torch.tensor([1.0, 2.0]))
        >>> len(entries), entries.at(torch.tensor([1])).values
        (2, tensor([2.]))
    """

    shape: tuple[int, int]
    positions: Tensor
    values: Tensor

    def __len__(self) -> int:
        """Return their number."""
        return len(self.values)

    def at(self, index: Tensor) -> "Entries":
        """Return some of them."""
        return Entries(self.shape, self.positions[index], self.values[index])

    def joined(self, *others: "Entries") -> "Entries":
        """Return these and others of the same matrix."""
        parts = (self, *others)
        return Entries(
            self.shape,
            torch.cat([part.positions for part in parts]),
            torch.cat([part.values for part in parts]),
        )
