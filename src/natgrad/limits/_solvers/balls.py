"""Unit balls as cones: ‖b‖ ≤ t as a linear map of (b, t) into a symmetric cone.

Three norms have such a ball: the largest entry, the longest group, the largest singular value.
Their duals (the sum of entries, of lengths, of singular values) are solved through them.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from natgrad.limits._solvers.cones import Array, Cone, Orthant, SecondOrder, Semidefinite


class Ball(Protocol):
    """The map (b, t) ↦ M(b, t) with M(b, t) in the cone if and only if ‖b‖ ≤ t; b is flat."""

    @property
    def cone(self) -> Cone:
        """Return the cone."""

    def mul(self, b: Array, t: float) -> Array:
        """Return M(b, t)."""

    def adjoint(self, z: Array) -> tuple[Array, float]:
        """Return Mᵀz as its parts in b and t."""

    def gram(self, metric: Array) -> tuple[Array, Array, float]:
        """Return the blocks (b, b), (b, t) and (t, t) of Mᵀ · metric · M."""


class MaxBall:
    """|bⱼ| ≤ t: (t − b, t + b) ≥ 0."""

    def __init__(self, size: int) -> None:
        self.cone = Orthant(2 * size)

    def mul(self, b: Array, t: float) -> Array:
        """Return (t − b, t + b)."""
        return np.concatenate([t - b, t + b])

    def adjoint(self, z: Array) -> tuple[Array, float]:
        """Return the difference and the sum."""
        low, high = z.reshape(2, -1)
        return high - low, float(z.sum())

    def gram(self, metric: Array) -> tuple[Array, Array, float]:
        """Return a diagonal, a difference and a sum of weights."""
        low, high = metric.reshape(2, -1)
        return np.diag(low + high), high - low, float(metric.sum())


class GroupBall:
    """‖b_g‖ ≤ t for every group g: rows (t, b_g), shorter groups padded with zeros.

    Args:
        groups: The number of the group of each entry, 0…g − 1.
    """

    def __init__(self, groups: npt.NDArray[np.int64]) -> None:
        self.groups = groups
        count = int(groups.max()) + 1
        sizes = np.bincount(groups, minlength=count)
        self.place = np.empty_like(groups)  # of each entry in its group's row
        for g in range(count):
            self.place[groups == g] = np.arange(sizes[g]) + 1
        self.cone = SecondOrder(count, int(sizes.max()))
        self.pairs = (groups[:, None] == groups).nonzero()  # of entries in one group

    def mul(self, b: Array, t: float) -> Array:
        """Return rows (t, b_g)."""
        out = t * self.cone.unit()
        out[self.groups, self.place] = b
        return out

    def adjoint(self, z: Array) -> tuple[Array, float]:
        """Return the entries in their places, and the sum of the first column."""
        return z[self.groups, self.place], float(z[:, 0].sum())

    def gram(self, metric: Array) -> tuple[Array, Array, float]:
        """Return the blocks of the groups."""
        first, second = self.pairs
        blocks = np.zeros((len(self.groups), len(self.groups)))
        blocks[self.pairs] = metric[self.groups[first], self.place[first], self.place[second]]
        return blocks, metric[self.groups, 0, self.place], float(metric[:, 0, 0].sum())


class SpectralBall:
    """σ₁(B) ≤ t for B of shape `(k, d)`: [[tI, B], [Bᵀ, tI]] is positive semi-definite."""

    def __init__(self, k: int, d: int) -> None:
        self.k, self.d, self.cone = k, d, Semidefinite(k + d)

    def mul(self, b: Array, t: float) -> Array:
        """Return the block matrix."""
        out = t * self.cone.unit()
        out[: self.k, self.k :] = b.reshape(self.k, self.d)
        out[self.k :, : self.k] = b.reshape(self.k, self.d).mT
        return out

    def adjoint(self, z: Array) -> tuple[Array, float]:
        """Return twice the off-diagonal block, and the trace."""
        corner = z[: self.k, self.k :] + z[self.k :, : self.k].mT
        return corner.reshape(-1), float(z.diagonal().sum())

    def gram(self, metric: Array) -> tuple[Array, Array, float]:
        """Return 2 (P₁₁ ⊗ P₂₂ + P₁₂ crossed), 2 P²₁₂ and tr P² for the metric z ↦ P z P."""
        k, d = self.k, self.d
        upper, corner, lower = metric[:k, :k], metric[:k, k:], metric[k:, k:]
        straight = np.einsum("ac,bd->abcd", upper, lower)
        crossed = np.einsum("ad,cb->abcd", corner, corner)
        square = metric @ metric
        return (
            2 * (straight + crossed).reshape(k * d, k * d),
            2 * square[:k, k:].reshape(-1),
            float(square.diagonal().sum()),
        )


class Inside:
    """min t subject to Ab ≥ h, ‖b‖ ≤ t, in x = (b, t): for norms that have a ball."""

    def __init__(self, a: Array, h: Array, ball: Ball) -> None:
        n, d = a.shape
        self.a, self.ball = a, ball
        self.cones: tuple[Cone, ...] = (Orthant(n), ball.cone)
        self.c = np.zeros(d + 1)
        self.c[d] = 1
        self.h = [h, np.zeros_like(ball.cone.unit())]

    def mul(self, x: Array) -> list[Array]:
        """Return Ab and the ball's element."""
        return [self.a @ x[:-1], self.ball.mul(x[:-1], float(x[-1]))]

    def adjoint(self, z: list[Array]) -> Array:
        """Return Gᵀz."""
        b, t = self.ball.adjoint(z[1])
        return np.append(self.a.mT @ z[0] + b, t)

    def gram(self, metrics: list[Array]) -> Array:
        """Return Gᵀ M G."""
        bb, bt, tt = self.ball.gram(metrics[1])
        inner = self.a.mT @ (metrics[0][:, None] * self.a) + bb
        return np.block([[inner, bt[:, None]], [bt[None], np.full((1, 1), tt)]])


class Outside:
    """max f·λ subject to ‖Aᵀλ‖ ≤ 1, λ ≥ 0, in x = λ: for norms whose dual has a ball."""

    def __init__(self, a: Array, f: Array, ball: Ball) -> None:
        n = len(a)
        self.a, self.ball, self.c = a, ball, -f
        self.cones: tuple[Cone, ...] = (Orthant(n), ball.cone)
        self.h = [np.zeros_like(f), -ball.cone.unit()]

    def mul(self, x: Array) -> list[Array]:
        """Return λ and the ball's element."""
        return [x, self.ball.mul(self.a.mT @ x, 0.0)]

    def adjoint(self, z: list[Array]) -> Array:
        """Return Gᵀz."""
        return z[0] + self.a @ self.ball.adjoint(z[1])[0]

    def gram(self, metrics: list[Array]) -> Array:
        """Return Gᵀ M G."""
        return np.diag(metrics[0]) + self.a @ self.ball.gram(metrics[1])[0] @ self.a.mT

    def primal(self, z: list[Array]) -> Array:
        """Return b from the multipliers."""
        return -self.ball.adjoint(z[1])[0]
