"""Residuals of a factored matrix at its observed entries, dense or sparse, whichever is cheaper."""

import warnings
from typing import Protocol

import torch
from torch import Tensor

# Below this share of observed entries, products with a sparse residual are faster than dense ones.
_SPARSE_BELOW = 0.1
_SPARSE_FROM = 250_000  # entries of the matrix; smaller ones stay in the cache


class Residual(Protocol):
    """R = Y − left · right at the observed entries, zero elsewhere."""

    def update(self, left: Tensor, right: Tensor) -> None:
        """Compute R anew."""

    def pull(self, left: Tensor, right: Tensor, of_left: Tensor, of_right: Tensor) -> None:
        """Write R · rightᵀ and leftᵀ · R, the descent directions of both factors."""

    def times(self, v: Tensor) -> Tensor:
        """Return R · v."""

    def transposed_times(self, u: Tensor) -> Tensor:
        """Return Rᵀ · u."""

    def sum_of_squares(self) -> float:
        """Return ‖R‖²."""


def residual(positions: Tensor, values: Tensor, shape: tuple[int, int]) -> Residual:
    """Return the cheaper of the two for these positions `(n, 2)`, each at most once."""
    rows, columns = shape
    size = rows * columns
    if size >= _SPARSE_FROM and len(values) < _SPARSE_BELOW * size:
        return SparseResidual(positions, values, shape)
    return DenseResidual(positions, values, shape)


class DenseResidual:
    """Three dense matrices: values, mask, residual."""

    def __init__(self, positions: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        self.target = values.new_zeros(shape)
        self.mask = values.new_zeros(shape)
        rows, columns = positions.long().unbind(1)
        self.target[rows, columns] = values
        self.mask[rows, columns] = 1
        self.matrix = torch.empty_like(self.target)

    def update(self, left: Tensor, right: Tensor) -> None:
        """Compute R anew."""
        torch.mm(left, right, out=self.matrix)
        torch.addcmul(self.target, self.matrix, self.mask, value=-1, out=self.matrix)

    def pull(self, left: Tensor, right: Tensor, of_left: Tensor, of_right: Tensor) -> None:
        """Write R · rightᵀ and leftᵀ · R."""
        torch.mm(self.matrix, right.mT, out=of_left)
        torch.mm(left.mT, self.matrix, out=of_right)

    def times(self, v: Tensor) -> Tensor:
        """Return R · v."""
        return self.matrix @ v

    def transposed_times(self, u: Tensor) -> Tensor:
        """Return Rᵀ · u."""
        return self.matrix.mT @ u

    def sum_of_squares(self) -> float:
        """Return ‖R‖²."""
        return float(torch.linalg.matrix_norm(self.matrix)) ** 2


class SparseResidual:
    """Compressed rows of R, and of its transpose; memory grows with the observed entries alone."""

    def __init__(self, positions: Tensor, values: Tensor, shape: tuple[int, int]) -> None:
        rows, columns = positions.long().unbind(1)
        order = torch.argsort(rows * shape[1] + columns)
        rows, columns, values = rows[order], columns[order], values[order]
        across = torch.argsort(columns * shape[0] + rows)
        self._shape = shape
        self._target = _compressed(_starts(rows, shape[0]), columns, values, shape)
        self._across, self._rows = across, rows[across]
        self._column_starts = _starts(columns, shape[1])
        self.matrix = self._target

    def update(self, left: Tensor, right: Tensor) -> None:
        """Compute R anew."""
        self.matrix = torch.sparse.sampled_addmm(self._target, left, right, beta=1, alpha=-1)

    def pull(self, left: Tensor, right: Tensor, of_left: Tensor, of_right: Tensor) -> None:
        """Write R · rightᵀ and leftᵀ · R."""
        of_left.copy_(self.times(right.mT))
        of_right.copy_(self.transposed_times(left).mT)

    def times(self, v: Tensor) -> Tensor:
        """Return R · v."""
        return self.matrix @ v.contiguous()

    def transposed_times(self, u: Tensor) -> Tensor:
        """Return Rᵀ · u."""
        flipped = _compressed(
            self._column_starts,
            self._rows,
            self.matrix.values()[self._across],
            (self._shape[1], self._shape[0]),
        )
        return flipped @ u.contiguous()

    def sum_of_squares(self) -> float:
        """Return ‖R‖²."""
        return float(torch.linalg.vector_norm(self.matrix.values())) ** 2


def _starts(sorted_index: Tensor, size: int) -> Tensor:
    counts = torch.bincount(sorted_index, minlength=size)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])


def _compressed(starts: Tensor, index: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():  # torch calls compressed rows a beta feature, once a process
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        return torch.sparse_csr_tensor(starts, index, values, shape, check_invariants=False)
