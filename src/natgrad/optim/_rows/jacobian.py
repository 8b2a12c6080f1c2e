"""The Jacobian of all residuals as an operator: products, Gram matrices and norms, in chunks.

Rows come in strips, one for each block and column of the residuals. Sides are named after what
they count: `gram` is P × P, `kernel` N × N.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from natgrad.optim._rows.pieces import Dense, Outer, Piece

__all__ = ["Jacobian", "Strip"]

# Numbers that a dense Jacobian may have before products use factors: 256 MiB in double precision.
DENSE = 2**25
# Numbers up to which products use a dense Jacobian even if they would not need it: 4 MiB stay in
# the cache, and a product is one call instead of several for each parameter.
TINY = 2**19


@dataclass(frozen=True)
class Strip:
    """Rows of n residuals: one piece for each parameter that they depend on, by its position."""

    n: int
    pieces: Mapping[int, Piece]

    def scaled(self, weight: Tensor) -> "Strip":
        """Return rows, each times its weight."""
        return Strip(self.n, {i: piece.scaled(weight) for i, piece in self.pieces.items()})


def contrasted(strips: Sequence[Strip], contrast: Tensor) -> list[Strip]:
    """Return C J for strips of the k outputs and contrasts `(n, r, k)` or `(1, r, k)`.

    Errors of one layer's same inputs add up; all else is kept side by side.
    """
    n, names = strips[0].n, sorted({i for strip in strips for i in strip.pieces})
    mixed = contrast.expand(n, -1, -1)
    return [
        Strip(n, {i: _combine(strips, mixed[:, r], i) for i in names})
        for r in range(mixed.shape[1])
    ]


def _combine(strips: Sequence[Strip], weights: Tensor, name: int) -> Piece:
    parts = [(k, strip.pieces[name]) for k, strip in enumerate(strips) if name in strip.pieces]
    scaled = [piece.scaled(weights[:, k]) for k, piece in parts]
    outers = [piece for piece in scaled if isinstance(piece, Outer)]
    if len(outers) < len(scaled):
        return Dense(torch.stack([piece.rows() for piece in scaled]).sum(0))
    same: dict[tuple[int, torch.Size], list[Outer]] = {}
    for piece in outers:
        same.setdefault((piece.inputs.data_ptr(), piece.inputs.shape), []).append(piece)
    merged = [
        (torch.stack([piece.errors for piece in group]).sum(0), group[0].inputs)
        for group in same.values()
    ]
    return Outer.of(merged)


class Jacobian:
    """Rows of N residuals in P parameters."""

    def __init__(self, strips: Sequence[Strip], sizes: Sequence[int], like: Tensor) -> None:
        self.strips, self.sizes, self.like = list(strips), list(sizes), like.detach()
        self.lengths = [strip.n for strip in self.strips]
        self.starts = [sum(self.sizes[:i]) for i in range(len(self.sizes))]
        self.shape = (sum(self.lengths), sum(sizes))

    @cached_property
    def small(self) -> bool:
        """Return whether the rows may be formed all at once."""
        return self.shape[0] * self.shape[1] <= DENSE

    @property
    def _formed(self) -> bool:
        """Return whether products use all rows: they are there, or cost next to nothing."""
        return "dense" in self.__dict__ or self.shape[0] * self.shape[1] <= TINY

    @cached_property
    def dense(self) -> Tensor:
        """Return all rows, `(N, P)`."""
        out = self.like.new_empty(self.shape)
        for strip, rows in zip(self.strips, torch.split(out, self.lengths), strict=True):
            self._fill(strip, rows)
        return out

    def _fill(self, strip: Strip, out: Tensor) -> Tensor:
        for i, columns in enumerate(torch.split(out, self.sizes, 1)):
            if i in strip.pieces:
                strip.pieces[i].fill(columns)
            else:
                columns.zero_()
        return out

    def _zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.like.dtype, device=self.like.device)

    def times(self, v: Tensor) -> Tensor:
        """Return J v, `(N,)`."""
        if self._formed:
            return self.dense @ v
        parts = torch.split(v, self.sizes)
        out = [self._zeros(strip.n) for strip in self.strips]
        for total, strip in zip(out, self.strips, strict=True):
            for i, piece in strip.pieces.items():
                total += piece.times(parts[i])
        return torch.cat(out)

    def transposed(self, z: Tensor) -> Tensor:
        """Return Jᵀ z, `(P,)`."""
        if self._formed:
            return self.dense.mT @ z
        out = self._zeros(self.shape[1])
        parts = torch.split(out, self.sizes)
        for strip, weights in zip(self.strips, torch.split(z, self.lengths), strict=True):
            for i, piece in strip.pieces.items():
                parts[i].add_(piece.transposed(weights))
        return out

    def gram(self) -> Tensor:
        """Return Jᵀ J, `(P, P)`; rows are formed at once or a chunk at a time."""
        if self.small:
            return self.dense.mT @ self.dense
        out = self._zeros(self.shape[1], self.shape[1])
        for chunk in self._row_chunks(max(1, DENSE // (4 * self.shape[1]))):
            out.addmm_(chunk.mT, chunk)
        return out

    def square_norms(self) -> Tensor:
        """Return the squared norm of each column, `(P,)`."""
        if self._formed:
            return self.dense.square().sum(0)
        out = self._zeros(self.shape[1])
        n, p = self.shape
        for chunk in self._row_chunks(max(1, min(DENSE, n * n) // (4 * p))):
            out += chunk.square_().sum(0)
        return out

    def _row_chunks(self, length: int) -> Iterator[Tensor]:
        """Yield rows in chunks, which reuse the same memory."""
        buffer = self.like.new_empty(min(length, max(self.lengths)), self.shape[1])
        for strip in self.strips:
            for a in range(0, strip.n, length):
                b = min(a + length, strip.n)
                part = {i: piece.part(a, b) for i, piece in strip.pieces.items()}
                yield self._fill(Strip(b - a, part), buffer[: b - a])

    def kernel(self, metric: Tensor | None = None) -> Tensor:
        """Return J M⁻¹ Jᵀ, `(N, N)`, for a diagonal metric M; the identity without.

        Fewer than N² more numbers are in memory. For the identity, parameters with long rows and
        few factors contribute products of inner products and never form a row.
        """
        n = self.shape[0]
        if metric is not None and self._formed:
            rows = self.dense * metric.rsqrt()
            return rows @ rows.mT
        out = self._zeros(n, n)
        ends = [sum(self.lengths[: i + 1]) for i in range(len(self.strips))]
        for i, size in enumerate(self.sizes):
            if metric is None and self._shorter_as_factors(i):
                self._add_factors(out, i, ends)
                continue
            root = None
            if metric is not None:
                root = metric[self.starts[i] : self.starts[i] + size].rsqrt()
            self._add_rows(out, i, root)
        return out

    def _shorter_as_factors(self, i: int) -> bool:
        """Return whether products of inner products take fewer operations than rows."""
        pieces = [strip.pieces[i] for strip in self.strips if i in strip.pieces]
        found = [piece.channels for piece in pieces]
        if not found or any(one is None for one in found):
            return False
        s = sum(one[0] for one in found if one is not None) / len(found)
        _, out, n_in = found[0]  # type: ignore[misc]
        # An entry of a Hadamard product costs as much as about eight multiplications of a GEMM.
        return s * s * (out + n_in + 8) < out * n_in

    def _add_factors(self, out: Tensor, i: int, ends: Sequence[int]) -> None:
        for a, left in enumerate(self.strips):
            for b, right in enumerate(self.strips[: a + 1]):
                if i not in left.pieces or i not in right.pieces:
                    continue
                self._add_inner(out, left.pieces[i], right.pieces[i], ends[a] - left.n, ends[b])

    def _add_inner(self, out: Tensor, left: Piece, right: Piece, row: int, stop: int) -> None:
        """Add one block of the kernel and its mirror image, some rows at a time."""
        assert isinstance(left, Outer)
        assert isinstance(right, Outer)
        n, m = left.shape[0], right.shape[0]
        column = stop - m
        s, q = left.channels[0], right.channels[0]
        chunk = max(1, max(out.numel(), TINY) // (3 * s * q * m))
        for a in range(0, n, chunk):
            b = min(a + chunk, n)
            block = left.part(a, b).inner(right)
            out[row + a : row + b, column:stop] += block
            if row != column:
                out[column:stop, row + a : row + b] += block.mT

    def _add_rows(self, out: Tensor, i: int, root: Tensor | None) -> None:
        pieces = [strip.pieces[i] for strip in self.strips if i in strip.pieces]
        if not pieces:
            return
        # Factors can be cut at some places only, plain rows anywhere.
        guide = next((piece for piece in pieces if piece.channels), pieces[0])
        for a, b in guide.cuts(max(1, self.shape[0] // 4)):
            rows = torch.cat(
                [
                    strip.pieces[i].rows(a, b) if i in strip.pieces else self._zeros(strip.n, b - a)
                    for strip in self.strips
                ]
            )
            if root is not None:
                rows = rows * root[a:b]
            out.addmm_(rows, rows.mT)

    def operations(self) -> tuple[float, float]:
        """Return about how many multiplications the two sides take: P × P, and N × N."""
        n, p = self.shape
        return n * p * p + p**3 / 3, n * n * p + n**3 / 3

    @property
    def side(self) -> str:
        """Return the cheaper side."""
        by_parameters, by_residuals = self.operations()
        return "parameters" if by_parameters <= by_residuals else "residuals"
