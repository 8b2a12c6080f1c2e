"""Natural gradient flow of matrix completion, with the Fisher over the observed entries.

[KMH21] §2.3 averages the Fisher over the training data, §4 over all entries of β. This module uses
the first, on the observed entries Ω alone. Their residual decays as e^{−t} for every depth,
but the velocity V = J_Ωᵀ z with (J_Ω J_Ωᵀ) z = residual also moves the entries that are not
observed: this natural gradient is not trivial.
"""

import math
import time

import torch
from torch import Tensor

from natgrad.errors import ConvergenceError, InvalidInputError
from natgrad.flows._methods.completion.flow import check_completion
from natgrad.flows.trajectory import Trajectory
from natgrad.parametrizations import MatrixProduct
from natgrad.parametrizations._products.kernel import ProductKernel
from natgrad.stopping import Status

Factors = tuple[Tensor, ...]

_ACCURACY = 1e-4  # of a velocity: well below the error allowed to a step
_LONGEST = 1.0
_DECAY = 0.02  # how far a step may miss e^{−h} times the residual, relative to the residual


@torch.no_grad()
def observed_natural_flow(
    factors: Factors,
    positions: Tensor,
    values: Tensor,
    *,
    train_error: float = 1e-6,
    rtol: float = 1e-2,
    max_steps: int = 10_000,
) -> Trajectory[Factors]:
    """Follow natural gradient flow with the Fisher of the observed entries until they fit.

    Ẇ = −J⁺(β_Ω − y), J the Jacobian of the observed entries β_Ω. The residual decays as e^{−t}.
    WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ is conserved, because J⁺ maps into the range of Jᵀ.

    Heun's method with step control: the error of a step is measured against each layer's norm, and
    on the observed entries against the residual, which must decay as e^{−h}. The N × N system of
    each velocity is solved by conjugate gradients and never formed.

    Args:
        factors: W₁…W_L, L ≥ 2, float64.
        positions: Rows and columns of the observed entries, each at most once, shape `(n, 2)`.
        values: Their values, shape `(n,)`.
        train_error: Stop at this mean squared error on them.
        rtol: Error of a step, relative to each layer's norm.
        max_steps: Give up (status stalled) after this number of steps.

    Returns:
        The trajectory; its only state is the last.

    Raises:
        InvalidInputError: If an argument has the wrong shape, dtype or value.

    Example:
        >>> product = MatrixProduct(2)
        >>> start = product.init_gaussian((3, 3), generator=torch.Generator().manual_seed(0))
        >>> corner = torch.tensor([[0, 0], [0, 1], [1, 0]])
        >>> values = torch.tensor([4.0, 2.0, 2.0]).double()
        >>> flow = observed_natural_flow(start, corner, values)
        >>> flow.status, round(float(product.hypothesis(flow.final)[1, 1]), 1)
        (<Status.CONVERGED: 'converged'>, 1.0)
    """
    check_completion(factors, positions, values)
    if values.dtype != torch.float64 or len(factors) < 2:
        raise InvalidInputError(
            "observed_natural_flow takes at least two factors in float64, but got "
            f"{len(factors)} in {values.dtype}."
        )
    if not (train_error > 0 and 0 < rtol < 1 and max_steps > 0):
        raise InvalidInputError(
            "train_error and max_steps must be positive and rtol in (0, 1), but are "
            f"{train_error!r}, {max_steps!r} and {rtol!r}."
        )
    began = time.perf_counter()
    flow = ObservedFlow(factors, positions, values, rtol)
    goal = 0.5 * train_error * len(values)
    status, detail = Status.STALLED, f"gave up after {max_steps} steps"
    try:
        flow.start()
        while flow.steps < max_steps:
            if flow.loss <= goal:
                status, detail = Status.CONVERGED, f"the entries fit at t = {flow.t:.6g}"
                break
            flow.step()
    except ConvergenceError as error:
        status, detail = Status.SINGULAR, f"a rank is lost near t = {flow.t:.6g}: {error}"
    return Trajectory(
        times=torch.tensor([flow.t], dtype=torch.float64),
        states=tuple(w[None] for w in flow.factors),
        losses=torch.tensor([flow.loss], dtype=torch.float64),
        status=status,
        detail=detail,
        method="Heun, conjugate gradients on the observed entries",
        evaluations=flow.evaluations,
        steps=flow.steps,
        error_estimate=flow.error,
        seconds=time.perf_counter() - began,
    )


class ObservedFlow:
    """Factors, their velocity, and its solution z, which is the initial guess of the next solve."""

    def __init__(
        self,
        factors: Factors,
        positions: Tensor,
        values: Tensor,
        rtol: float,
        accuracy: float = _ACCURACY,
    ) -> None:
        self._accuracy = accuracy
        shape = (factors[0].shape[0], factors[-1].shape[1])
        rows, columns = positions.long().unbind(1)
        self._mask, self._target = values.new_zeros(shape), values.new_zeros(shape)
        self._mask[rows, columns], self._target[rows, columns] = 1.0, values
        self._product, self._rtol = MatrixProduct(len(factors)), rtol
        self.factors, self.t, self.steps, self.error = factors, 0.0, 0, 0.0
        self.evaluations, self.loss = 0, math.inf
        self._z: Tensor | None = None
        self._v: Factors = ()
        self.before: tuple[float, Factors, Factors] = (0.0, factors, ())
        self._h = 0.0

    def start(self) -> None:
        """Find the first velocity, and a step that moves each factor by at most a tenth."""
        self._v, self._z, self.loss = self._velocity(self.factors)
        speeds = _norms(self._v) / _norms(self.factors)
        self._h = min(_LONGEST, 0.1 / max(float(speeds.max()), 1e-300))

    def step(self, end: float = math.inf) -> None:
        """Take one step of Heun's method, shortened until its error is within tolerance."""
        self.before = (self.t, self.factors, self._v)
        while True:
            h = min(self._h, end - self.t)
            ahead = _add(self.factors, self._v, h)
            w, z, _ = self._velocity(ahead)
            moved = _add(_add(self.factors, self._v, h / 2), w, h / 2)
            difference = tuple(0.5 * h * (b - a) for a, b in zip(self._v, w, strict=True))
            error = float((_norms(difference) / (self._rtol * _norms(moved))).max())
            error = max(error, self._missed(moved, h) / _DECAY)
            self._h = min(_LONGEST, h * min(4.0, max(0.2, 0.85 * max(error, 1e-6) ** -0.5)))
            if error <= 1:
                break
        self.factors, self._z = moved, z
        self._v, self._z, self.loss = self._velocity(moved)
        self.t = end if h == end - self.t else self.t + h
        self.steps += 1
        self.error += self._rtol * error

    def at(self, t: float) -> Factors:
        """Return the factors at a time within the last step, by a cubic."""
        start, before, v = self.before
        h = self.t - start
        x = (t - start) / h
        a, b = (1 + 2 * x) * (1 - x) ** 2, h * x * (1 - x) ** 2
        c, d = x * x * (3 - 2 * x), h * x * x * (x - 1)
        parts = zip(before, v, self.factors, self._v, strict=True)
        return tuple(a * p + b * q + c * r + d * s for p, q, r, s in parts)

    def _residual(self, factors: Factors) -> Tensor:
        return self._mask * (self._target - self._product.hypothesis(factors))

    def _missed(self, moved: Factors, h: float) -> float:
        now = self._residual(self.factors)
        gap = self._residual(moved) - math.exp(-h) * now
        return float(gap.norm() / now.norm())

    def _velocity(self, factors: Factors) -> tuple[Factors, Tensor, float]:
        self.evaluations += 1
        kernel = ProductKernel(factors)
        residual = self._residual(factors)
        z = kernel.solve_observed(self._mask, residual, accuracy=self._accuracy, guess=self._z)
        return kernel.pull(z), z, 0.5 * float(residual.square().sum())


def _add(a: Factors, b: Factors, scale: float) -> Factors:
    return tuple(x + scale * y for x, y in zip(a, b, strict=True))


def _norms(factors: Factors) -> Tensor:
    return torch.stack([torch.linalg.matrix_norm(w) for w in factors])
