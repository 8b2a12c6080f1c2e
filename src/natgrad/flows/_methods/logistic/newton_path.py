"""Natural gradient flow of logistic regression, solved at any time without integration.

For logistic loss the Fisher is the Hessian, so the flow is Newton's: X̃ᵀσ(−u(t)) = e^{−t} X̃ᵀσ(−u(0))
with u = X̃β. From a known time, the velocity predicts β at a later time and Newton's method
corrects it. Steps grow with t, because late paths are nearly straight.

Multiplied by e^{t} the equation keeps its size: rows that determine the solution have weights of
order one forever, and all others may underflow. A Cholesky factor of the weighted Gram matrix is
then enough, and is a preconditioner until the weights have changed much. If the heavy rows do not
span the space (quasi-separable data, starts with margins of hundreds) weights are kept as
logarithms, at many times the cost.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from natgrad.errors import ConvergenceError, RankDeficientError
from natgrad.linalg import graded_lstsq
from natgrad.linalg._graded import graded_balance, weighted_gram

_NEWTON_STEPS = 20
_BLURRED = 1e-6
_NEGLIGIBLE = 60.0  # rows this far (in log-weight) below the heaviest are left out of a factor
_WRONG = -15.0  # from a start with margins below this, velocities do not predict the path
_SETTLED = 45.0  # e^{−45} is lost in rounding
_STALE_ITERATIONS = 8  # more iterations cost as much as a new factor
_FRESH_ITERATIONS = 20


class NewtonPath:
    """A point on the path that can be advanced.

    Args:
        x: Signed inputs X̃ = y ⊙ X in double precision, of full column rank.
        beta: β(0).
        tolerance: Largest change of a margin in the last Newton step, relative to the largest
            margin (or one).

    Attributes:
        t: Time reached.
        beta: β(t).
        u: Margins X̃β(t).
        error: Largest relative change of a margin in the last Newton step of any time so far, by
            a factor of that time's own weights.
        factors: Matrices factorized.
        steps: Steps taken.
    """

    def __init__(self, x: Tensor, beta: Tensor, tolerance: float) -> None:
        self.x, self.beta, self.tolerance = x, beta, tolerance
        self.u = x @ beta
        self.t, self.error, self.steps, self._step = 0.0, 0.0, 0, 0.5
        self._log_start = logsigmoid(-self.u)
        self._system = _System(x, tolerance)

    @property
    def factors(self) -> int:
        """Return the number of matrices factorized so far."""
        return self._system.factors

    def advance(self, end: float) -> Tensor:
        """Return β at a later time.

        Raises:
            ConvergenceError: If Newton's method fails, however small the step.
        """
        if self.t == 0 and float(self.u.min()) < _WRONG:
            # Velocities are of order e^{−u}: the path leaves this start at once; search from zero.
            start = torch.zeros_like(self.beta)
            if self._correct(start, min(self._step, end), limit=100) is not None:
                self.t = min(self._step, end)
        while self.t < end:
            velocity = self._system.velocity(self.u, self._log_start - self.t)
            if self._stands(velocity):
                break
            if self._straight(velocity):
                self.beta = self.beta + (end - self.t) * velocity
                break
            self._advance_once(velocity, end)
        self.t, self.u = end, self.x @ self.beta
        return self.beta

    def _lost(self) -> ConvergenceError:
        return ConvergenceError(
            f"Newton's method lost the natural gradient flow at t = {self.t:.6g}. Use "
            "integrate(natural, …) for these data."
        )

    def _advance_once(self, velocity: Tensor, end: float) -> None:
        step = min(self._step, end - self.t)
        while True:
            rounds = self._correct(self.beta + step * velocity, self.t + step)
            if rounds is not None:
                break
            step /= 3
            if step < 1e-9 * max(self.t, 1.0):
                raise self._lost()
        growth = 3.0 if rounds <= 6 else 1.5
        # A step that was cut at a requested time does not reduce the next step.
        self._step = growth * step if self.t + step < end else max(self._step, growth * step)
        self.t, self.steps = self.t + step, self.steps + 1

    def _correct(self, beta: Tensor, t: float, limit: int = _NEWTON_STEPS) -> int | None:
        """Move to the path at time t from a prediction; return the number of Newton steps."""
        target = self._log_start - t
        before = math.inf
        for rounds in range(1, limit + 1):
            u = self.x @ beta
            change = self._system.newton(u, target)
            if change is None:
                return None
            moved = self.x @ change
            largest, size = float(moved.abs().max()), max(1.0, float(u.abs().max()))
            if not math.isfinite(largest):
                return None
            beta = beta + (1.0 if largest < 0.1 else _length(u, moved, target)) * change
            if largest <= self.tolerance * size:
                if self._system.blind:
                    self._system.forget()
                    continue
                if self._system.blur > _BLURRED:
                    raise ConvergenceError(
                        f"natural gradient flow at t = {t:.6g} depends on rounding errors of its "
                        "first gradient, as it does where its limit is one of several solutions "
                        "of a linear program. limits.natural_flow says which it tends to."
                    )
                self.beta, self.u = beta, self.x @ beta
                self.error = max(self.error, largest / size, self._system.blur)
                return rounds
            if 0.3 * before < largest < 1e-2 and not self._system.graded:
                # Close, but rounding errors of heavy rows exceed the light rows.
                self._system.graded = True
            before = largest
        return None

    def _stands(self, velocity: Tensor) -> bool:
        """Return whether β is at a finite end, where velocities decay as e^{−t}."""
        size = max(1.0, float(self.u.abs().max()))
        return float((self.x @ velocity).abs().max()) <= self.tolerance * size

    def _straight(self, velocity: Tensor) -> bool:
        """Return whether the rest of the path is a straight line.

        The rows that determine the solution move at velocity one. The others have no weight
        relative to them and move faster, so they never gain weight.
        """
        speed = self.x @ velocity
        held = (speed - 1).abs() <= 1e-9
        if int(held.sum()) < self.x.shape[1] or float(self.u.min()) < _SETTLED:
            return False
        if int(torch.linalg.matrix_rank(self.x[held])) < self.x.shape[1]:
            return False  # duplicates: lighter rows decide the rest, and still move it
        light = self.u > self.u[held].max() + _SETTLED
        return bool((held | (light & (speed > 1))).all())


def _length(u: Tensor, moved: Tensor, log_target: Tensor) -> float:
    """Return the length of a Newton step: the least Σ softplus(−u) + e^{log_target}·u along it.

    Far from the path steps of length one are too short (a margin too small by m takes m of them)
    or too long (exponentials overshoot).
    """

    def slope(length: float) -> float:
        log_sigma = logsigmoid(-(u + length * moved))
        top = torch.maximum(log_sigma.max(), log_target.max())
        gap = torch.exp(log_target - top) - torch.exp(log_sigma - top)
        return float(gap @ moved)

    low, high = 0.0, 1.0
    while slope(high) < 0 and high < 100:
        low, high = high, 2 * high
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2


class _Weights:
    """Weights at margins u: logarithms, with factors e^{top} removed."""

    def __init__(self, u: Tensor, log_target: Tensor) -> None:
        self.log_sigma = logsigmoid(-u)
        self.log_weight = logsigmoid(u) + self.log_sigma
        self.top = self.log_weight.max()
        self.w = torch.exp(self.log_weight - self.top)
        self.sigma = torch.exp(self.log_sigma - self.top)
        self.target = torch.exp(log_target - self.top)
        self.size = max(1.0, float(u.abs().max()))


class _System:
    """Solves with the Fisher F = X̃ᵀ diag(σ(u)σ(−u)) X̃; its factor is kept between calls.

    Attributes:
        graded: Whether weights must be kept as logarithms; set when this is detected.
        blur: Effect of rounding errors of the gradients on the margins, relative to the largest.
        blind: Whether the last solve used a factor of other weights, which sees convergence in
            directions that had weight then.
        factors: Matrices factorized.
    """

    def __init__(self, x: Tensor, tolerance: float) -> None:
        self.x, self.tolerance, self.factors, self.graded = x, tolerance, 0, False
        self.blind = False
        self._factor: tuple[Tensor, Tensor] | None = None
        self.blur = 0.0
        noise = torch.randn(len(x), dtype=x.dtype, generator=torch.Generator().manual_seed(0))
        self._noise = torch.finfo(x.dtype).eps * noise.to(x.device)

    def forget(self) -> None:
        """Drop the factor, so that the next solve computes a new one."""
        self._factor = None

    def velocity(self, u: Tensor, log_target: Tensor) -> Tensor:
        """Return v with F v = X̃ᵀσ(−u) = X̃ᵀe^{log_target}."""
        weights, self.blind = _Weights(u, log_target), False
        if not self.graded:
            v = self._solve(weights, self.x.mT @ weights.sigma, accuracy=1e-13)
            if v is not None:
                return v
        self.factors += 1
        return graded_lstsq(self.x, 1 + torch.exp(-u), weights.log_weight / 2).solution

    def newton(self, u: Tensor, log_target: Tensor) -> Tensor | None:
        """Return v with F v = X̃ᵀ(σ(−u) − e^{log_target}), or None if that overflows."""
        weights, self.blind = _Weights(u, log_target), False
        if not self.graded:
            gap = weights.sigma - weights.target
            if not bool(torch.isfinite(gap).all()):
                return None
            change = self._solve(weights, self.x.mT @ gap, accuracy=1e-4)
            if change is not None:
                return change
        self.factors += 1
        try:
            change, noise = graded_balance(
                self.x,
                weights.log_weight / 2,
                weights.log_sigma / 2,
                log_target / 2,
                self._noise,
            )
        except (ArithmeticError, RankDeficientError):
            return None
        self.blur = float((self.x @ noise).abs().max()) / weights.size
        return change

    def _solve(self, weights: "_Weights", r: Tensor, accuracy: float) -> Tensor | None:
        """Return the solution by the last factor or a new one; None if it is ill-conditioned."""
        if self._factor is not None:
            v = self._iterate(weights.w, r, accuracy, _STALE_ITERATIONS)
            self.blind = v is not None
            if v is not None:
                return v
        if not self._refactor(weights):
            return None
        return self._iterate(weights.w, r, accuracy, _FRESH_ITERATIONS)

    def _refactor(self, weights: "_Weights") -> bool:
        """Factorize; return whether the factor exists and its rounding errors are small."""
        keep = weights.w > math.exp(-_NEGLIGIBLE)
        gram = weighted_gram(self.x[keep], weights.w[keep])
        scale = gram.diagonal().rsqrt()
        factor, info = torch.linalg.cholesky_ex(scale[:, None] * gram * scale)
        self.factors += 1
        self._factor = None if int(info) else (scale, factor)
        if self._factor is None:
            return False
        noise = self.x.mT @ (self._noise * (weights.sigma + weights.target))
        self.blur = float((self.x @ self._precondition(noise)).abs().max()) / weights.size
        self.graded = not self.blur <= self.tolerance
        return not self.graded

    def _precondition(self, r: Tensor) -> Tensor:
        assert self._factor is not None
        scale, factor = self._factor
        return scale * torch.cholesky_solve((scale * r)[:, None], factor)[:, 0]

    def _iterate(self, w: Tensor, r: Tensor, accuracy: float, limit: int) -> Tensor | None:
        """Return v by preconditioned conjugate gradients; None if they do not converge."""
        v, rest, z = torch.zeros_like(r), r, self._precondition(r)
        p, energy = z, float(r @ z)
        start = energy
        for _ in range(limit):
            if energy <= start * accuracy**2:
                return v
            moved = self.x.mT @ (w * (self.x @ p))
            curvature = float(p @ moved)
            if not curvature > 0:
                return None
            v, rest = v + (energy / curvature) * p, rest - (energy / curvature) * moved
            z = self._precondition(rest)
            before, energy = energy, float(rest @ z)
            p = z + (energy / before) * p
        return v if energy <= start * max(accuracy, 1e-10) ** 2 else None
