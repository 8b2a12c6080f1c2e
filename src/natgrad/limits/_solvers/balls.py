"""Unit balls as cones: ‖b‖ ≤ t as a linear map of (b, t) into a symmetric cone.

Three norms have such a ball: the largest entry, the longest group, the largest singular value.
Their duals (the sum of entries, of lengths, of singular values) are solved through them.
"""

from typing import Protocol

import torch
from torch import Tensor

from natgrad.limits._solvers.cones import Cone, Orthant, SecondOrder, Semidefinite


class Ball(Protocol):
    """The map (b, t) ↦ M(b, t) with M(b, t) in the cone if and only if ‖b‖ ≤ t; b is flat."""

    @property
    def cone(self) -> Cone:
        """Return the cone."""

    def mul(self, b: Tensor, t: float) -> Tensor:
        """Return M(b, t)."""

    def adjoint(self, z: Tensor) -> tuple[Tensor, float]:
        """Return Mᵀz as its parts in b and t."""

    def gram(self, metric: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return the blocks (b, b), (b, t) and (t, t) of Mᵀ · metric · M."""


class MaxBall:
    """|bⱼ| ≤ t: (t − b, t + b) ≥ 0."""

    def __init__(self, size: int) -> None:
        self.cone = Orthant(2 * size)

    def mul(self, b: Tensor, t: float) -> Tensor:
        """Return (t − b, t + b)."""
        return torch.cat([t - b, t + b])

    def adjoint(self, z: Tensor) -> tuple[Tensor, float]:
        """Return the difference and the sum."""
        low, high = z.view(2, -1)
        return high - low, float(z.sum())

    def gram(self, metric: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return a diagonal, a difference and a sum of weights."""
        low, high = metric.view(2, -1)
        return (low + high).diag(), high - low, float(metric.sum())


class GroupBall:
    """‖b_g‖ ≤ t for every group g: rows (t, b_g), shorter groups padded with zeros.

    Args:
        groups: The number of the group of each entry, 0…g − 1.
    """

    def __init__(self, groups: Tensor) -> None:
        self.groups = groups
        count = int(groups.max()) + 1
        sizes = torch.bincount(groups, minlength=count)
        self.place = torch.empty_like(groups)  # of each entry in its group's row
        for g in range(count):
            self.place[groups == g] = torch.arange(int(sizes[g])) + 1
        self.cone = SecondOrder(count, int(sizes.max()))

    def mul(self, b: Tensor, t: float) -> Tensor:
        """Return rows (t, b_g)."""
        out = t * self.cone.unit()
        out[self.groups, self.place] = b
        return out

    def adjoint(self, z: Tensor) -> tuple[Tensor, float]:
        """Return the entries in their places, and the sum of the first column."""
        return z[self.groups, self.place], float(z[:, 0].sum())

    def gram(self, metric: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return the blocks of the groups."""
        together = self.groups[:, None] == self.groups[None, :]
        blocks = metric[self.groups[:, None], self.place[:, None], self.place[None, :]]
        cross = metric[self.groups, 0, self.place]
        return torch.where(together, blocks, 0.0), cross, float(metric[:, 0, 0].sum())


class SpectralBall:
    """σ₁(B) ≤ t for B of shape `(k, d)`: [[tI, B], [Bᵀ, tI]] is positive semi-definite."""

    def __init__(self, k: int, d: int) -> None:
        self.k, self.d, self.cone = k, d, Semidefinite(k + d)

    def mul(self, b: Tensor, t: float) -> Tensor:
        """Return the block matrix."""
        out = t * self.cone.unit()
        out[: self.k, self.k :] = b.view(self.k, self.d)
        out[self.k :, : self.k] = b.view(self.k, self.d).mT
        return out

    def adjoint(self, z: Tensor) -> tuple[Tensor, float]:
        """Return twice the off-diagonal block, and the trace."""
        corner = z[: self.k, self.k :] + z[self.k :, : self.k].mT
        return corner.reshape(-1), float(z.diagonal().sum())

    def gram(self, metric: Tensor) -> tuple[Tensor, Tensor, float]:
        """Return 2 (P₁₁ ⊗ P₂₂ + P₁₂ crossed), 2 P²₁₂ and tr P² for the metric z ↦ P z P."""
        k, d = self.k, self.d
        upper, corner, lower = metric[:k, :k], metric[:k, k:], metric[k:, k:]
        straight = torch.einsum("ac,bd->abcd", upper, lower)
        crossed = torch.einsum("ad,cb->abcd", corner, corner)
        square = metric @ metric
        return (
            2 * (straight + crossed).reshape(k * d, k * d),
            2 * square[:k, k:].reshape(-1),
            float(square.diagonal().sum()),
        )


class Inside:
    """min t subject to Ab ≥ h, ‖b‖ ≤ t, in x = (b, t): for norms that have a ball."""

    def __init__(self, a: Tensor, h: Tensor, ball: Ball) -> None:
        n, d = a.shape
        self.a, self.ball = a, ball
        self.cones: tuple[Cone, ...] = (Orthant(n), ball.cone)
        self.c = torch.zeros(d + 1, dtype=a.dtype)
        self.c[d] = 1
        self.h = [h, torch.zeros_like(ball.cone.unit())]

    def mul(self, x: Tensor) -> list[Tensor]:
        """Return Ab and the ball's element."""
        return [self.a @ x[:-1], self.ball.mul(x[:-1], float(x[-1]))]

    def adjoint(self, z: list[Tensor]) -> Tensor:
        """Return Gᵀz."""
        b, t = self.ball.adjoint(z[1])
        return torch.cat([self.a.mT @ z[0] + b, b.new_tensor([t])])

    def gram(self, metrics: list[Tensor]) -> Tensor:
        """Return Gᵀ M G."""
        bb, bt, tt = self.ball.gram(metrics[1])
        inner = self.a.mT @ (metrics[0][:, None] * self.a) + bb
        top = torch.cat([inner, bt[:, None]], 1)
        return torch.cat([top, torch.cat([bt, bt.new_tensor([tt])])[None]])


class Outside:
    """max f·λ subject to ‖Aᵀλ‖ ≤ 1, λ ≥ 0, in x = λ: for norms whose dual has a ball."""

    def __init__(self, a: Tensor, f: Tensor, ball: Ball) -> None:
        n = len(a)
        self.a, self.ball, self.c = a, ball, -f
        self.cones: tuple[Cone, ...] = (Orthant(n), ball.cone)
        self.h = [torch.zeros_like(f), -ball.cone.unit()]

    def mul(self, x: Tensor) -> list[Tensor]:
        """Return λ and the ball's element."""
        return [x, self.ball.mul(self.a.mT @ x, 0.0)]

    def adjoint(self, z: list[Tensor]) -> Tensor:
        """Return Gᵀz."""
        return z[0] + self.a @ self.ball.adjoint(z[1])[0]

    def gram(self, metrics: list[Tensor]) -> Tensor:
        """Return Gᵀ M G."""
        return metrics[0].diag() + self.a @ self.ball.gram(metrics[1])[0] @ self.a.mT

    def primal(self, z: list[Tensor]) -> Tensor:
        """Return b from the multipliers."""
        return -self.ball.adjoint(z[1])[0]
