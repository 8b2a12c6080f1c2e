"""The penalized nuclear norm by iterated soft-thresholding."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.fits._entries import Entries
from natgrad.flows._methods.completion.observed import Residual, residual

_ITERATIONS = 300
_CHANGE = 3e-4


@dataclass(frozen=True, eq=False)
class LowRank:
    """A matrix U diag(s) Vᵀ with orthonormal U and V."""

    u: Tensor
    s: Tensor
    v: Tensor

    def halves(self) -> tuple[Tensor, Tensor]:
        """Return U diag(s) and Vᵀ."""
        return self.u * self.s, self.v.mT


class SoftImpute:
    """argmin ½ Σ (B − y)² + λ‖B‖_* by iterated soft-thresholding (Mazumder et al. 2010).

    The matrix to decompose is the last iterate plus its sparse residual. It is never formed: one
    step of subspace iteration from the last singular vectors costs two products with the residual.

    Args:
        entries: Standardized entries.
        width: Largest number of singular values to keep.
        seed: Seed of the first subspace.

    Example:
        >>> positions = torch.tensor([[0, 0], [0, 1], [1, 0]])
        >>> entries = Entries((2, 2), positions, torch.tensor([1.0, 0.5, 0.5]).double())
        >>> left, right = SoftImpute(entries, width=2, seed=0).solve(0.5).halves()
        >>> torch.linalg.matrix_rank(left @ right)
        tensor(1)
    """

    def __init__(self, entries: Entries, *, width: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        rows, columns = entries.shape
        self._values = entries.values.float()
        self._residual: Residual = residual(entries.positions, self._values, entries.shape)
        start = torch.randn(columns, width, generator=generator, dtype=torch.float32)
        v = torch.linalg.qr(start)[0]
        self.now = LowRank(v.new_zeros(rows, width), v.new_zeros(width), v)

    def largest(self) -> float:
        """Return the λ above which the solution is zero: the entries' largest singular value."""
        v, size = self.now.v, 0.0
        self._residual.update(torch.zeros_like(self.now.u), v.mT)
        for _ in range(20):
            u = torch.linalg.qr(self._residual.times(v))[0]
            w = self._residual.transposed_times(u)
            size = float(torch.linalg.matrix_norm(w, 2))
            v = torch.linalg.qr(w)[0]
        return size

    def solve(self, penalty: float) -> LowRank:
        """Return the solution for λ, starting from the last one."""
        for _ in range(_ITERATIONS):
            before = self.now
            self.now = self._iterate(penalty)
            if _distance(before, self.now) <= _CHANGE * max(float(self.now.s.norm()), 1e-30):
                break
        return self.now

    def _iterate(self, penalty: float) -> LowRank:
        u, s, v = self.now.u, self.now.s, self.now.v
        self._residual.update(u * s, v.mT)
        q = torch.linalg.qr(u * s + self._residual.times(v))[0]  # (B + R) V
        w = v * s @ (u.mT @ q) + self._residual.transposed_times(q)  # (B + R)ᵀ Q
        p, t, rh = torch.linalg.svd(w, full_matrices=False)
        return LowRank(q @ rh.mT, (t - penalty).clamp(min=0), p)


def _distance(a: LowRank, b: LowRank) -> float:
    """Return ‖A − B‖_F from inner products of factors."""
    cross = (a.u.mT @ b.u) * (a.s[:, None] * b.s[None, :]) * (a.v.mT @ b.v)
    square = float(a.s.square().sum() + b.s.square().sum() - 2 * cross.sum())
    return math.sqrt(max(square, 0.0))


def penalties(largest: float, many: int) -> list[float]:
    """Return values of λ: half of the largest useful one, then half of the last each time."""
    return [largest / 2 ** (k + 1) for k in range(many)]
