"""What is subtracted from the entries of a matrix before a fit."""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from natgrad.errors import InvalidInputError
from natgrad.fits._entries import Entries

Centering = Literal["none", "mean", "means"]
"""What is subtracted before a fit: nothing, the overall mean, or row and column means too."""

_SWEEPS = 20


@dataclass(frozen=True, eq=False)
class Center:
    """The center that is subtracted before fitting, and the unit of the remainder.

    Attributes:
        mean: Overall mean.
        rows: Deviation of each row.
        columns: Deviation of each column.
        unit: Root mean square of the remainder.

    Example:
        >>> entries = Entries((1, 2), torch.tensor([[0, 0], [0, 1]]), torch.tensor([1.0, 3.0]))
        >>> center = Center.of(entries, "mean")
        >>> center.mean, center.standardized(entries).values
        (2.0, tensor([-1.,  1.], dtype=torch.float64))
    """

    mean: float
    rows: Tensor
    columns: Tensor
    unit: float

    @classmethod
    def of(cls, entries: Entries, how: Centering) -> "Center":
        """Return the center of entries; row and column effects by backfitting, shrunk.

        Effects are random with a variance of their own, which is estimated by expectation
        maximization. Their predictions are means over n entries, shrunk by n / (n + λ): λ is the
        variance of the remainder over that of the effects, at least one.

        Raises:
            InvalidInputError: If the remainder is zero.
        """
        effects = [torch.zeros(n, dtype=torch.float64) for n in entries.shape]
        mean = 0.0 if how == "none" else float(entries.values.mean())
        rest = entries.values - mean
        if how == "means":
            sides = [_Side(entries, k) for k in range(2)]
            for _ in range(_SWEEPS):
                for k, side in enumerate(sides):
                    effects[k], rest = side.refit(effects[k], rest)
        unit = math.sqrt(float(rest.square().mean()))
        if unit <= 1e-12 * max(abs(mean), float(entries.values.abs().max()), 1e-300):
            raise InvalidInputError(
                "after centering, all observed values are zero: the means explain them, and "
                "there is nothing to complete."
            )
        return cls(mean, effects[0], effects[1], unit)

    def at(self, positions: Tensor) -> Tensor:
        """Return the center at these positions."""
        rows, columns = positions.unbind(1)
        return self.mean + self.rows[rows] + self.columns[columns]

    def standardized(self, entries: Entries) -> Entries:
        """Return the entries minus the center, in its unit."""
        values = (entries.values - self.at(entries.positions)) / self.unit
        return Entries(entries.shape, entries.positions, values)

    def everywhere(self) -> Tensor:
        """Return the center as a matrix."""
        return self.mean + self.rows[:, None] + self.columns[None, :]


class _Side:
    """Effects of rows or of columns, and the λ that shrinks them."""

    def __init__(self, entries: Entries, side: int) -> None:
        self._index = entries.positions[:, side]
        self._many = torch.bincount(self._index, minlength=entries.shape[side]).double()
        self._seen = self._many > 0
        self._lambda = 1.0

    def refit(self, effects: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Return new effects and the remainder without them; update λ by one EM step."""
        rest = rest + effects[self._index]
        total = torch.zeros_like(effects).index_add_(0, self._index, rest)
        weight = self._many + self._lambda
        effects = total / weight
        rest = rest - effects[self._index]
        noise = rest.square().mean()
        # Second moment of an effect: its prediction squared, plus the uncertainty left.
        moment = (effects.square() + noise / weight)[self._seen].mean()
        if float(moment) > 0:
            self._lambda = max(1.0, float(noise / moment))
        return effects, rest
