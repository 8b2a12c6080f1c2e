"""Observed entries of a matrix."""

from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import dense, describe, instance, tensor
from natgrad.errors import DtypeError, InvalidInputError, ShapeError


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


def checked(entries: Entries, name: str) -> Entries:
    """Return entries that can be fitted, values as float64.

    Raises:
        InvalidInputError: If they cannot; the message says why.
    """
    shape = instance(entries, name, Entries).shape
    sides = isinstance(shape, tuple) and len(shape) == 2
    if not sides or not all(isinstance(side, int) and side > 0 for side in shape):
        raise ShapeError(f"the shape of {name} must be two positive integers, not {shape!r}.")
    values = tensor(entries.values, f"values of {name}", shape=("n",))
    positions = dense(entries.positions, f"positions of {name}")
    if positions.dtype != torch.int64:
        raise DtypeError(f"positions of {name} must be int64, but are {describe(positions)}.")
    if positions.shape != (len(values), 2):
        raise ShapeError(
            f"positions of {name} must have shape ({len(values)}, 2), one for each value, but have "
            f"{tuple(positions.shape)}."
        )
    if bool((positions < 0).any()) or bool((positions >= positions.new_tensor(shape)).any()):
        raise InvalidInputError(f"positions of {name} must lie in a matrix of shape {shape}.")
    return Entries(shape, positions, values.double())
