"""Damped least squares: min |A v − t|² + λ |D v|², on the cheaper side of A.

Both sides work with w = D v and B = A D⁻¹. The side of the parameters factorizes BᵀB + λ, the side
of the residuals B Bᵀ + λ. Refinement takes residuals from B itself and not from its square; where
it does not converge, B is decomposed by QR, whose condition number is the square root.
"""

from typing import Literal, Protocol

import torch
from torch import Tensor

from natgrad.optim._rows.jacobian import Jacobian

__all__ = ["Side", "Solver", "choose"]

Solver = Literal["auto", "parameters", "residuals", "conjugate_gradients"]

_REFINEMENTS = 4
# The refinement ends at corrections this small, or is not needed at all; QR is used above the
# second number.
ENOUGH = 1e-12
_POOR = 1e-6
# Largest number of products of conjugate gradients.
_PRODUCTS = 500
# Sides up to which matrices are factorized: 2 GiB in double precision.
LARGEST = 16_000


class Side(Protocol):
    """One way to solve, for any λ and target at the same rows."""

    name: str
    error: float

    def solve(self, target: Tensor, damping: float, enough: float = ENOUGH) -> Tensor:
        """Return v, `(P,)`; `error` then holds the size of the last correction, relative.

        `enough` is the relative error at which refinement ends.
        """

    def solve_and_move(self, target: Tensor, damping: float) -> tuple[Tensor, Tensor]:
        """Return v and A v."""

    def release(self) -> None:
        """Free what serves the last λ alone."""


def choose(jacobian: Jacobian, scale: Tensor | None, solver: Solver) -> Side:
    """Return the requested side, or the cheaper one.

    Args:
        jacobian: A.
        scale: The diagonal of D, None for the identity.
        solver: A side, or `"auto"`.
    """
    if solver == "auto":
        solver = "parameters" if jacobian.side == "parameters" else "residuals"
        if min(jacobian.shape) > LARGEST:
            solver = "conjugate_gradients"
    kinds: dict[str, type[_Direct] | type[ConjugateGradients]] = {
        "parameters": ParameterSide,
        "residuals": ResidualSide,
        "conjugate_gradients": ConjugateGradients,
    }
    return kinds[solver](jacobian, scale)


class _Direct:
    """What both factorized sides share."""

    name = ""

    def __init__(self, jacobian: Jacobian, scale: Tensor | None) -> None:
        self.jacobian, self.scale = jacobian, scale
        self.error = 0.0
        self.decomposed = False
        self.matrix = self._square()
        self._trace = float(self.matrix.trace())  # at least the largest eigenvalue
        self._factor: tuple[float, Tensor | None] = (-1.0, None)
        self._qr: tuple[Tensor, Tensor] | None = None

    def solve(self, target: Tensor, damping: float, enough: float = ENOUGH) -> Tensor:
        """Return v by Cholesky and refinement, or by QR."""
        x = self._solution(target, damping, enough)
        return self._by_qr(target, damping) if x is None else self._direction(x)

    def solve_and_move(self, target: Tensor, damping: float) -> tuple[Tensor, Tensor]:
        """Return v and A v."""
        x = self._solution(target, damping, ENOUGH)
        if x is not None:
            return self._direction(x), self._moved(x)
        v = self._by_qr(target, damping)
        return v, self.jacobian.times(v)

    def release(self) -> None:
        """Free the factor."""
        self._factor = (-1.0, None)

    def _solution(self, target: Tensor, damping: float, enough: float) -> Tensor | None:
        """Return the unknown of the square system, None if QR has to solve it."""
        factor = self._cholesky(damping)
        x = None if factor is None else self._refined(factor, target, damping, enough)
        if x is None:
            self.decomposed, self.error = True, 0.0
        return x

    def _cholesky(self, damping: float) -> Tensor | None:
        if self._factor[0] != damping:
            self.release()  # before the next one: three matrices would be too many
            diagonal = self.matrix.diagonal()
            own = diagonal.clone()
            diagonal += damping
            factor, info = torch.linalg.cholesky_ex(self.matrix)
            diagonal.copy_(own)
            self._factor = (damping, None if int(info) else factor)
        return self._factor[1]

    def _refined(
        self, factor: Tensor, target: Tensor, damping: float, enough: float
    ) -> Tensor | None:
        x = _back(factor, self._start(target))
        # Without refinement the error is at most about eps times the condition number.
        rounding = torch.finfo(x.dtype).eps * (1 + self._trace / damping)
        if rounding <= enough:
            self.error = rounding
            return x
        change = float("inf")
        for _ in range(_REFINEMENTS):
            step = _back(factor, self._left(x, target, damping))
            x = x + step
            previous, change = change, float(step.norm() / x.norm().clamp_min(1e-300))
            if change <= enough or not change < 0.5 * previous:
                break
        self.error = change
        return x if change <= _POOR else None

    def times(self, w: Tensor) -> Tensor:
        """Return B w."""
        return self.jacobian.times(w if self.scale is None else w / self.scale)

    def transposed(self, z: Tensor) -> Tensor:
        """Return Bᵀ z."""
        pulled = self.jacobian.transposed(z)
        return pulled if self.scale is None else pulled / self.scale

    def _unscaled(self, w: Tensor) -> Tensor:
        return w if self.scale is None else w / self.scale

    def _rows(self) -> Tensor:
        dense = self.jacobian.dense
        return dense if self.scale is None else dense / self.scale

    def _square(self) -> Tensor:
        raise NotImplementedError

    def _start(self, target: Tensor) -> Tensor:
        raise NotImplementedError

    def _left(self, x: Tensor, target: Tensor, damping: float) -> Tensor:
        raise NotImplementedError

    def _direction(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _moved(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def _by_qr(self, target: Tensor, damping: float) -> Tensor:
        raise NotImplementedError


class ParameterSide(_Direct):
    """(BᵀB + λ) w = Bᵀt."""

    name = "parameters"

    def _square(self) -> Tensor:
        gram = self.jacobian.gram()
        return gram if self.scale is None else gram / self.scale / self.scale[:, None]

    def _start(self, target: Tensor) -> Tensor:
        return self.transposed(target)

    def _left(self, x: Tensor, target: Tensor, damping: float) -> Tensor:
        return self.transposed(target - self.times(x)) - damping * x

    def _direction(self, x: Tensor) -> Tensor:
        return self._unscaled(x)

    def _moved(self, x: Tensor) -> Tensor:
        return self.times(x)

    def _by_qr(self, target: Tensor, damping: float) -> Tensor:
        if self._qr is None:
            self._qr = torch.linalg.qr(self._rows())
        q, r = self._qr
        return self._unscaled(_damped(r, q.mT @ target, damping))


class ResidualSide(_Direct):
    """(B Bᵀ + λ) z = t, w = Bᵀz."""

    name = "residuals"

    def _square(self) -> Tensor:
        return self.jacobian.kernel(None if self.scale is None else self.scale.square())

    def _start(self, target: Tensor) -> Tensor:
        return target

    def _left(self, x: Tensor, target: Tensor, damping: float) -> Tensor:
        return target - self.times(self.transposed(x)) - damping * x

    def _direction(self, x: Tensor) -> Tensor:
        return self._unscaled(self.transposed(x))

    def _moved(self, x: Tensor) -> Tensor:
        return self.matrix @ x

    def _by_qr(self, target: Tensor, damping: float) -> Tensor:
        if self._qr is None:
            self._qr = torch.linalg.qr(self._rows().mT)
        q, r = self._qr
        return self._unscaled(q @ _damped(r.mT, target, damping))


def _back(factor: Tensor, b: Tensor) -> Tensor:
    """Return (L Lᵀ)⁻¹ b; torch.cholesky_solve would copy L."""
    half = torch.linalg.solve_triangular(factor, b[:, None], upper=False)
    solution: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return solution[:, 0]


def _damped(a: Tensor, b: Tensor, damping: float) -> Tensor:
    """Return the minimizer of |a x − b|² + λ |x|² for a square matrix, by QR."""
    p = a.shape[1]
    eye = torch.eye(p, dtype=a.dtype, device=a.device)
    q, r = torch.linalg.qr(torch.cat([a, damping**0.5 * eye]))
    solution: Tensor = torch.linalg.solve_triangular(
        r, (q.mT[:, : len(a)] @ b)[:, None], upper=True
    )
    return solution[:, 0]


class ConjugateGradients:
    """(BᵀB + λ) w = Bᵀt by products alone, for sides too large to factorize.

    Columns are normalized first. `error` is the norm of the residual of the equation,
    relative to its right-hand side.
    """

    name = "conjugate_gradients"

    def __init__(self, jacobian: Jacobian, scale: Tensor | None) -> None:
        self.jacobian, self.error = jacobian, 0.0
        self.scale = torch.ones_like(jacobian.like.new_empty(jacobian.shape[1]))
        self.scale = self.scale if scale is None else scale
        self.norms = jacobian.square_norms()

    def release(self) -> None:
        """Do nothing: there is no factor."""

    def solve_and_move(self, target: Tensor, damping: float) -> tuple[Tensor, Tensor]:
        """Return v and A v."""
        v = self.solve(target, damping)
        return v, self.jacobian.times(v)

    def solve(self, target: Tensor, damping: float, enough: float = 1e-8) -> Tensor:
        """Return v after a limited number of products with A and its transpose."""
        metric = damping * self.scale.square()
        preconditioner = 1 / (self.norms + metric)
        right = self.jacobian.transposed(target)
        x, left = torch.zeros_like(right), right.clone()
        y = preconditioner * left
        direction, size = y, float(left @ y)
        first = float(right.norm())
        for _ in range(_PRODUCTS):
            if float(left.norm()) <= enough * first:
                break
            product = self.jacobian.transposed(self.jacobian.times(direction)) + metric * direction
            alpha = size / float(direction @ product)
            x = x + alpha * direction
            left = left - alpha * product
            y = preconditioner * left
            previous, size = size, float(left @ y)
            direction = y + (size / previous) * direction
        self.error = float(left.norm()) / first if first else 0.0
        return x
