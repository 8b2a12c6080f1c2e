"""Natural gradient flows that need no integration, at any time.

- Logits under a Jacobian of full row rank ([KMH21] Theorem 4): log(1 + e^{ys}) = t + c.
- Logistic regression with any data: the Fisher is the Hessian, so natural gradient flow is Newton's
  flow and ∇L(t) = e^{−t} ∇L(0); β(t) minimises Σ softplus(−u) + e^{−t} c·β, c = −∇L(0).
- Deep linear networks: W(t) = W* + e^{−t} (W(0) − W*), [BLH18] (18).
"""

import math
import time

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from natgrad.directions import natural
from natgrad.directions.batch import check_problem
from natgrad.errors import ConvergenceError, RankDeficientError
from natgrad.flows.trajectory import Status, Trajectory
from natgrad.likelihoods import Bernoulli
from natgrad.linalg import graded_fisher_solve, lstsq
from natgrad.parametrizations import Direct

_NEWTON_ITERATIONS = 12


def natural_logits(s: Tensor, y: Tensor, t: Tensor | float) -> Tensor:
    """Return logits at time t under natural gradient flow with a full-row-rank Jacobian.

    [KMH21] (63)–(73), corrected: with s̃ = y ⊙ s, ds̃/dt = 1 + e^{−s̃} and s̃(t) = a + log(1 − e^{−a}),
    a = t + log(1 + e^{s̃(0)}). Time is that of a mean loss with a mean Fisher, or sum with sum.

    Args:
        s: Logits at time 0, shape `(n,)`.
        y: Labels ±1.
        t: Time, a number or shape `(m, 1)` for several.

    Example:
        >>> natural_logits(torch.zeros(1), torch.ones(1), 1e4)
        tensor([10000.6934])
    """
    a = t + torch.nn.functional.softplus(y * s)
    return y * (a + torch.log(-torch.expm1(-a)))


@torch.no_grad()
def natural_flow_of_logistic_regression(
    beta: Tensor, batch: tuple[Tensor, Tensor], times: Tensor, *, tolerance: float = 1e-11
) -> Trajectory[Tensor]:
    """Return natural gradient flow of logistic regression at the times, each to full accuracy.

    Where the rows of X are independent β(t) = β(0) + X⁺ (s(t) − s(0)) with the logits of
    `natural_logits`. Otherwise every time is solved for by Newton's method from the last, with
    weights as logarithms: times of 10⁶ or 10¹² cost no more than the path bends.

    Args:
        beta: β(0), shape `(d,)`.
        batch: Inputs `(n, d)` and labels ±1.
        times: Increasing times, shape `(m,)`.
        tolerance: Largest change of a margin in the last Newton step, relative.

    Raises:
        ConvergenceError: If Newton's method fails.

    Example:
        >>> x, y = torch.eye(2).double(), torch.tensor([1.0, -1.0]).double()
        >>> flow = natural_flow_of_logistic_regression(
        ...     torch.zeros(2).double(), (x, y), torch.tensor([1e6])
        ... )
        >>> [round(b, 6) for b in flow.final.tolist()]
        [1000000.693147, -1000000.693147]
    """
    started = time.perf_counter()
    likelihood, model = Bernoulli(), Direct()
    x, y = check_problem(likelihood, model, beta, batch)
    independent = len(x) <= x.shape[1] and lstsq(x, y).rank == len(x)
    if independent:
        s = natural_logits(x @ beta, y, times.to(x)[:, None])
        states = beta + lstsq(x, (s - x @ beta).mT).solution.mT
        evaluations = 0
    else:
        path = _NewtonPath(x * y[:, None], beta, tolerance)
        states = torch.stack([path.advance(float(t)) for t in times])
        evaluations = path.evaluations
    losses = torch.stack([likelihood(x @ state, y) for state in states])
    return Trajectory(
        times.double(),
        states,
        losses.double(),
        status=Status.TIME_REACHED,
        detail=f"time {float(times[-1]):g} reached",
        method="closed form" if independent else "Newton path",
        evaluations=evaluations,
        steps=len(times),
        error_estimate=0.0 if independent else tolerance,
        seconds=time.perf_counter() - started,
    )


class _NewtonPath:
    """Follow X̃ᵀσ(−u) = e^{−t} X̃ᵀσ(−u₀) by a natural predictor and a Newton corrector."""

    def __init__(self, x: Tensor, beta: Tensor, tolerance: float) -> None:
        self.x, self.beta, self.tolerance = x, beta, tolerance
        self.t, self.step, self.evaluations = 0.0, 0.5, 0
        self._target = logsigmoid(-(x @ beta)) / 2  # log-weights of ∇L(0)

    def advance(self, end: float) -> Tensor:
        while self.t < end:
            step = min(self.step, end - self.t)
            moved = self._correct(self.beta + step * self._velocity(), self.t + step)
            if moved is None:
                self.step = step / 4
                if self.step < 1e-9:
                    raise ConvergenceError(
                        f"Newton's method lost the natural gradient flow at t = {self.t:.6g}. "
                        "Use integrate(natural, …) for these data."
                    )
                continue
            self.beta, self.t = moved, self.t + step
            self.step = max(self.step, step) * 3
        return self.beta

    def _velocity(self) -> Tensor:
        ones = torch.ones_like(self.x[:, 0])
        self.evaluations += 1
        return natural(Bernoulli(), Direct(), self.beta, (self.x, ones))

    def _correct(self, beta: Tensor, t: float) -> Tensor | None:
        x, ones = self.x, torch.ones(len(self.x), dtype=beta.dtype, device=beta.device)
        rows = torch.cat([x, x])
        signs = torch.cat([ones, -ones])
        for _ in range(_NEWTON_ITERATIONS):
            u = x @ beta
            ell = (logsigmoid(u) + logsigmoid(-u)) / 2
            log_weight = torch.cat([logsigmoid(-u) / 2, self._target - t / 2])
            try:
                change = graded_fisher_solve(x, ell, rows, log_weight, signs).solution
            except (ArithmeticError, RankDeficientError):
                return None
            self.evaluations += 1
            moved = x @ change
            largest = float(moved.abs().max())
            if not math.isfinite(largest) or largest > 30:
                return None
            beta = beta + change
            if largest <= self.tolerance * max(1.0, float(u.abs().max())):
                return beta
        return None


def deep_linear_total(total: Tensor, optimum: Tensor, t: Tensor | float) -> Tensor:
    """Return W(t) = W* + e^{−t} (W(0) − W*) under natural gradient flow. [BLH18] (18).

    It holds for every generalised inverse, as long as the partial products keep full rank: a square
    network meets det W(t) = 0 on this line if W(0)⁻¹W* has a negative real eigenvalue, and its flow
    is singular there.

    Args:
        total: W(0).
        optimum: W* = ⟨y xᵀ⟩ Σ⁻¹.
        t: Time, broadcast against W.

    Example:
        >>> deep_linear_total(torch.ones(1, 1), torch.zeros(1, 1), math.log(4.0))
        tensor([[0.2500]])
    """
    decay = torch.exp(-torch.as_tensor(t, dtype=total.dtype, device=total.device))
    return optimum + decay * (total - optimum)


def singular_times(total: Tensor, optimum: Tensor) -> Tensor:
    """Return the times at which det W(t) = 0 on the line of `deep_linear_total`, increasing.

    det W(t) = 0 where e^{−t}/(1 − e^{−t}) = −μ for an eigenvalue μ of W(0)⁻¹W*: only real negative
    ones count.

    Example:
        >>> singular_times(torch.eye(1).double(), -torch.eye(1).double())
        tensor([0.6931], dtype=torch.float64)
    """
    mu = torch.linalg.eigvals(torch.linalg.solve(total, optimum))
    real = mu.real[(mu.imag.abs() <= 1e-12 * mu.abs().max()) & (mu.real < 0)]
    return torch.sort(torch.log1p(-1 / real)).values
