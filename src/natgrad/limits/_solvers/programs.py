"""The programs of the limits as `interior.Program`: products with G, and the normal matrix."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.limits._solvers.interior import Solve
from natgrad.linalg._graded import weighted_gram

V = TypeVar("V", Tensor, npt.NDArray[np.float64])


def cholesky_solver(matrix: Tensor) -> Solve | None:
    """Return the solver of a positive-definite system, with a little jitter if necessary."""
    size = matrix.diagonal().abs().max()
    if not bool(torch.isfinite(size)):
        return None
    for jitter in (0.0, 1e-15, 1e-13, 1e-11):
        shifted = matrix if jitter == 0 else matrix.clone()
        shifted.diagonal().add_(jitter * size)
        factor, info = torch.linalg.cholesky_ex(shifted)
        if not int(info):
            return lambda r: torch.cholesky_solve(r[:, None], factor)[:, 0]
    return None


def refined(solve: Callable[[V], V], apply: Callable[[V], V], steps: int = 1) -> Callable[[V], V]:
    """Return the solver with steps of iterative refinement on the true residual."""

    def better(r: V) -> V:
        x = solve(r)
        for _ in range(steps):
            x = x + solve(r - apply(x))
        return x

    return better


class Rows:
    """min ½q‖x‖² + c·x subject to Ax ≥ h: natural flow (q = 0), ℓ2 max margin of n ≥ d (q = 1)."""

    def __init__(self, a: Tensor, h: Tensor, c: Tensor, q: float = 0.0) -> None:
        self.a, self.h, self.c, self.q = a, h, c, q

    def curvature(self, x: Tensor) -> Tensor | None:
        """Return qx."""
        return self.q * x if self.q else None

    def mul(self, x: Tensor) -> Tensor:
        """Return Ax."""
        return self.a @ x

    def transposed(self, z: Tensor) -> Tensor:
        """Return Aᵀz."""
        return self.a.mT @ z

    def factor(self, w: Tensor) -> Solve | None:
        """Return the solver of (qI + Aᵀ diag(w) A) x = r, d-sided."""
        matrix = weighted_gram(self.a, w)
        matrix.diagonal().add_(self.q)
        solve = cholesky_solver(matrix)
        a, q = self.a, self.q
        return solve and refined(solve, lambda x: q * x + a.mT @ (w * (a @ x)))


class NonNegative:
    """min ½x·Kx − f·x subject to x ≥ 0: the dual of ℓ2 max margin for n < d, K = AAᵀ."""

    def __init__(self, gram: Tensor, f: Tensor) -> None:
        self.gram, self.c, self.h = gram, -f, torch.zeros_like(f)

    def curvature(self, x: Tensor) -> Tensor | None:
        """Return Kx."""
        return self.gram @ x

    def mul(self, x: Tensor) -> Tensor:
        """Return x."""
        return x

    def transposed(self, z: Tensor) -> Tensor:
        """Return z."""
        return z

    def factor(self, w: Tensor) -> Solve | None:
        """Return the solver of (K + diag(w)) x = r, n-sided."""
        solve = cholesky_solver(self.gram + torch.diag(w))
        return solve and refined(solve, lambda x: self.gram @ x + w * x)


class OneNormDual:
    """The dual of min Σ ωⱼ|bⱼ| subject to Ab ≥ 1 or Ab = f: max f·x with |Aᵀx| ≤ ω (and x ≥ 0).

    G stacks −Aᵀ, Aᵀ and, for inequalities, the identity; b is the difference of the first two
    multipliers. The normal matrix A diag(θ) Aᵀ (plus a diagonal) is n-sided.
    """

    def __init__(self, a: Tensor, f: Tensor, weights: Tensor, *, signed: bool) -> None:
        n, d = a.shape
        self.a, self.at, self.c, self.signed, self.d = a, a.mT.contiguous(), -f, signed, d
        self.h = torch.cat([-weights, -weights, a.new_zeros(n if signed else 0)])

    def curvature(self, x: Tensor) -> Tensor | None:
        """Return None: the program is linear."""
        return None

    def mul(self, x: Tensor) -> Tensor:
        """Return Gx."""
        g = self.a.mT @ x
        return torch.cat([-g, g, x]) if self.signed else torch.cat([-g, g])

    def transposed(self, z: Tensor) -> Tensor:
        """Return Gᵀz."""
        out = self.a @ (z[self.d : 2 * self.d] - z[: self.d])
        return out + z[2 * self.d :] if self.signed else out

    def factor(self, w: Tensor) -> Solve | None:
        """Return the solver of (A diag(θ) Aᵀ + diag(w₃)) x = r."""
        a, theta = self.a, w[: self.d] + w[self.d : 2 * self.d]
        diagonal = w[2 * self.d :] if self.signed else torch.zeros_like(self.c)
        matrix = weighted_gram(self.at, theta)
        matrix.diagonal().add_(diagonal)
        solve = cholesky_solver(matrix)
        return solve and refined(solve, lambda x: a @ (theta * (a.mT @ x)) + diagonal * x)


class OneNorm:
    """min ω·(u + v) subject to A(u − v) ≥ h, u ≥ 0, v ≥ 0, in x = (u, v): for n > d.

    With H = Aᵀ diag(w₁) A and e = du − dv the normal equations shrink to the d-sided
    (H + w₂w₃/(w₂+w₃)) e = (w₃ r₁ − w₂ r₂)/(w₂+w₃), then w₂ du + w₃ dv = r₁ + r₂.
    """

    def __init__(self, a: Tensor, h: Tensor, weights: Tensor) -> None:
        self.a, self.n, self.d = a, len(a), a.shape[1]
        self.c = torch.cat([weights, weights])
        self.h = torch.cat([h, a.new_zeros(2 * self.d)])

    def curvature(self, x: Tensor) -> Tensor | None:
        """Return None: the program is linear."""
        return None

    def mul(self, x: Tensor) -> Tensor:
        """Return (A(u − v), u, v)."""
        return torch.cat([self.a @ (x[: self.d] - x[self.d :]), x])

    def transposed(self, z: Tensor) -> Tensor:
        """Return Gᵀz."""
        g = self.a.mT @ z[: self.n]
        return torch.cat([g, -g]) + z[self.n :]

    def factor(self, w: Tensor) -> Solve | None:
        """Return the solver of the normal equations in (u, v)."""
        n, d, a = self.n, self.d, self.a
        w1, w2, w3 = w[:n], w[n : n + d], w[n + d :]
        total = w2 + w3
        diagonal = w2 * (w3 / total)
        matrix = weighted_gram(a, w1)
        matrix.diagonal().add_(diagonal)
        inner = cholesky_solver(matrix)
        if inner is None:
            return None
        by_e = refined(inner, lambda e: a.mT @ (w1 * (a @ e)) + diagonal * e)

        def solve(r: Tensor) -> Tensor:
            e = by_e((w3 / total) * r[:d] - (w2 / total) * r[d:])
            both = (r[:d] + r[d:]) / total
            return torch.cat([both + (w3 / total) * e, both - (w2 / total) * e])

        return solve


class Split:
    """max Σ tₙ subject to Ab ≥ t, 0 ≤ t ≤ 1: the largest set of rows that one b separates.

    Variables are (b, t). Eliminating t leaves Aᵀ diag(ω) A with 1/ω = 1/w₁ + 1/(w₂ + w₃).
    """

    def __init__(self, a: Tensor) -> None:
        n, d = a.shape
        self.a, self.d, self.n = a, d, n
        zero, one = a.new_zeros(n), a.new_ones(n)
        self.c = torch.cat([a.new_zeros(d), -one])
        self.h = torch.cat([zero, zero, -one])

    def curvature(self, x: Tensor) -> Tensor | None:
        """Return None: the program is linear."""
        return None

    def mul(self, x: Tensor) -> Tensor:
        """Return (Ab − t, t, −t)."""
        t = x[self.d :]
        return torch.cat([self.a @ x[: self.d] - t, t, -t])

    def transposed(self, z: Tensor) -> Tensor:
        """Return Gᵀz."""
        z1, z2, z3 = z.view(3, self.n)
        return torch.cat([self.a.mT @ z1, z2 - z1 - z3])

    def factor(self, w: Tensor) -> Solve | None:
        """Return the solver of the normal equations in (b, t)."""
        w1, w2, w3 = w.view(3, self.n)
        total = w1 + w2 + w3
        inner = cholesky_solver(weighted_gram(self.a, w1 * (w2 + w3) / total))
        if inner is None:
            return None
        a, d, by_b = self.a, self.d, inner

        def solve(r: Tensor) -> Tensor:
            b = by_b(r[:d] + a.mT @ (w1 * r[d:] / total))
            return torch.cat([b, (r[d:] + w1 * (a @ b)) / total])

        return solve
