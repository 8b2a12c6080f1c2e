"""Columns of a Jacobian that belong to one parameter, as factors or as numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Dense", "Outer", "Piece"]

# Inputs or outputs of a layer up to which a loop over them beats one batched product.
_THIN = 4


class Piece(Protocol):
    """Rows of n residuals in one parameter of p numbers."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return `(n, p)`."""

    @property
    def channels(self) -> tuple[int, int, int] | None:
        """Return the number s of factors per row and their two lengths; None for plain rows."""

    def rows(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return columns as a matrix, `(n, stop − start)`; see `cuts` for where to cut."""

    def fill(self, out: Tensor) -> None:
        """Write all columns into a matrix `(n, p)` of any strides."""

    def cuts(self, width: int) -> list[tuple[int, int]]:
        """Return ranges of columns of about this width."""

    def times(self, v: Tensor) -> Tensor:
        """Return J v, `(n,)`."""

    def transposed(self, z: Tensor) -> Tensor:
        """Return Jᵀ z, `(p,)`."""

    def scaled(self, weight: Tensor) -> "Piece":
        """Return the rows, each times its weight `(n,)`."""

    def part(self, start: int, stop: int) -> "Piece":
        """Return the rows of some residuals."""


@dataclass(frozen=True)
class Dense:
    """Rows as numbers: biases, and whatever came by a slower route."""

    matrix: Tensor  # (n, p)

    @property
    def shape(self) -> tuple[int, int]:
        """Return `(n, p)`."""
        return self.matrix.shape[0], self.matrix.shape[1]

    @property
    def channels(self) -> None:
        """Return None: there are no factors."""
        return None

    def rows(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return some columns."""
        return self.matrix[:, start:stop]

    def fill(self, out: Tensor) -> None:
        """Copy the columns."""
        out.copy_(self.matrix)

    def cuts(self, width: int) -> list[tuple[int, int]]:
        """Return ranges of columns."""
        return _ranges(self.matrix.shape[1], max(width, 1))

    def times(self, v: Tensor) -> Tensor:
        """Return J v."""
        return self.matrix @ v

    def transposed(self, z: Tensor) -> Tensor:
        """Return Jᵀ z."""
        return self.matrix.mT @ z

    def scaled(self, weight: Tensor) -> "Dense":
        """Return weighted rows."""
        return Dense(self.matrix * weight[:, None])

    def part(self, start: int, stop: int) -> "Dense":
        """Return some rows."""
        return Dense(self.matrix[start:stop])


@dataclass(frozen=True)
class Outer:
    """Rows Σₛ eₙₛ xₙₛᵀ in a weight matrix, which are never formed unless asked for."""

    errors: Tensor  # (n, s, out)
    inputs: Tensor  # (n, s, in)

    @staticmethod
    def of(pairs: Sequence[tuple[Tensor, Tensor]]) -> "Outer":
        """Return one piece of many pairs."""
        if len(pairs) == 1:
            return Outer(*pairs[0])
        return Outer(torch.cat([e for e, _ in pairs], 1), torch.cat([x for _, x in pairs], 1))

    @property
    def shape(self) -> tuple[int, int]:
        """Return `(n, p)`."""
        return len(self.errors), self.errors.shape[2] * self.inputs.shape[2]

    @property
    def channels(self) -> tuple[int, int, int]:
        """Return s, out, in."""
        _, s, out = self.errors.shape
        return s, out, self.inputs.shape[2]

    def rows(self, start: int = 0, stop: int | None = None) -> Tensor:
        """Return columns; both ends are multiples of the number of inputs."""
        n, width = self.inputs.shape[0], self.inputs.shape[2]
        errors = self.errors[:, :, start // width : None if stop is None else stop // width]
        return (errors.mT @ self.inputs).reshape(n, -1)

    def fill(self, out: Tensor) -> None:
        """Write the columns."""
        _, n_out, n_in = self.channels
        blocks = out.view(len(out), n_out, n_in)
        if min(n_out, n_in) > _THIN:
            torch.bmm(self.errors.mT, self.inputs, out=blocks)
        elif n_in <= n_out:  # thin products cost a call each: whole passes instead
            for i in range(n_in):
                blocks[:, :, i] = (self.errors * self.inputs[:, :, i : i + 1]).sum(1)
        else:
            for o in range(n_out):
                blocks[:, o] = (self.errors[:, :, o : o + 1] * self.inputs).sum(1)

    def cuts(self, width: int) -> list[tuple[int, int]]:
        """Return ranges of columns: whole rows of the weight matrix."""
        _, out, n_in = self.channels
        return [(a * n_in, b * n_in) for a, b in _ranges(out, max(width // n_in, 1))]

    def times(self, v: Tensor) -> Tensor:
        """Return J v by two small products."""
        _, out, n_in = self.channels
        return (self.inputs @ v.reshape(out, n_in).mT).mul_(self.errors).sum((1, 2))

    def transposed(self, z: Tensor) -> Tensor:
        """Return Jᵀ z by one product."""
        weighted = (self.errors * z[:, None, None]).flatten(0, 1)
        return (weighted.mT @ self.inputs.flatten(0, 1)).reshape(-1)

    def scaled(self, weight: Tensor) -> "Outer":
        """Return weighted rows."""
        return Outer(self.errors * weight[:, None, None], self.inputs)

    def part(self, start: int, stop: int) -> "Outer":
        """Return some rows."""
        return Outer(self.errors[start:stop], self.inputs[start:stop])

    def inner(self, other: "Outer") -> Tensor:
        """Return J Jᵀ with another piece, `(n, m)`, from products of errors and of inputs."""
        n, s, _ = self.errors.shape
        m, q, _ = other.errors.shape
        grams = self.errors.flatten(0, 1) @ other.errors.flatten(0, 1).mT
        grams *= self.inputs.flatten(0, 1) @ other.inputs.flatten(0, 1).mT
        return grams.reshape(n, s, m, q).sum((1, 3)) if s * q > 1 else grams


def _ranges(total: int, width: int) -> list[tuple[int, int]]:
    return [(a, min(a + width, total)) for a in range(0, total, width)]
