"""Natural gradient flows that need no integration, at any time.

- Logits under a Jacobian of full row rank ([KMH21] Theorem 4): log(1 + e^{ys}) = t + c.
- Logistic regression with any data: the Fisher is the Hessian, so natural gradient flow is Newton's
  flow and ∇L(t) = e^{−t} ∇L(0); β(t) minimizes Σ softplus(−u) + e^{−t} c·β, c = −∇L(0).
- Deep linear networks: W(t) = W* + e^{−t} (W(0) − W*), [BLH18] (18).
"""

import time

import torch
from torch import Tensor

from natgrad._checks import number, same_kind, tensor
from natgrad._named import named
from natgrad._renamed import renamed
from natgrad.directions._batch import check_problem
from natgrad.errors import ShapeError
from natgrad.flows._methods.logistic.flow import LogisticFlow, natural_logits
from natgrad.flows._recorder import check_times
from natgrad.flows.trajectory import Trajectory
from natgrad.likelihoods import Bernoulli
from natgrad.parametrizations import Direct
from natgrad.stopping import Status

__all__ = [
    "deep_linear_total",
    "natural_flow_of_logistic_regression",
    "natural_logits",
    "singular_times",
]


@renamed(tolerance="rtol")
@torch.no_grad()
@named
def natural_flow_of_logistic_regression(
    beta: Tensor, batch: tuple[Tensor, Tensor], times: Tensor, *, rtol: float = 1e-11
) -> Trajectory[Tensor]:
    """Return natural gradient flow of logistic regression at given times, to full accuracy.

    The flow is F β̇ = −∇L, for which ∇L(β(t)) = e^{−t} ∇L(β(0)); β(t) − β(0) stays in the span of
    the data. If the rows of X are independent, β(t) = β(0) + X⁺ (s(t) − s(0)) with the logits of
    `natural_logits`. Otherwise Newton's method finds each β(t) from the last one. Times of
    10⁶ or 10¹² are cheap, because late paths are nearly straight. All data are accepted. For
    separable data β tends to the vertex of `limits.natural_flow`, else to a finite optimum or, if
    only some rows are separable, to infinity within the complement of the rest.

    Args:
        beta: β(0), shape `(d,)`.
        batch: Inputs `(n, d)` and labels ±1.
        times: Increasing times, shape `(m,)`.
        rtol: Largest change of a margin in the last Newton step, relative.

    Returns:
        The trajectory; `error_estimate` is the largest such change at any time, and `evaluations`
        counts factorized matrices.

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
    likelihood = Bernoulli()
    x, y = check_problem(likelihood, Direct(), beta, batch)
    if beta.ndim != 1 or not x.is_floating_point():
        raise ShapeError("logistic regression takes β of shape (d,) and real inputs (n, d).")
    rtol = number(rtol, "rtol", low=0, low_open=True)
    times = check_times(times)
    flow = LogisticFlow(beta, x, likelihood.prepare(x @ beta, y)[1], rtol)
    states = torch.stack([flow.at(t) for t in times.tolist()])
    losses = torch.stack([likelihood(x @ state, y) for state in states])
    return Trajectory(
        times,
        states,
        losses.double(),
        status=Status.TIME_REACHED,
        detail=f"time {float(times[-1]):g} reached",
        method="closed form" if flow.path is None else "Newton path",
        evaluations=flow.evaluations,
        steps=len(times) if flow.path is None else flow.path.steps,
        error_estimate=flow.error,
        seconds=time.perf_counter() - started,
    )


@named
def deep_linear_total(total: Tensor, optimum: Tensor, t: Tensor | float) -> Tensor:
    """Return W(t) = W* + e^{−t} (W(0) − W*) under natural gradient flow. [BLH18] (18).

    It holds for every generalized inverse, as long as the partial products keep full rank: a square
    network meets det W(t) = 0 on this line if W(0)⁻¹W* has a negative real eigenvalue, and its flow
    is singular there.

    Args:
        total: W(0).
        optimum: W* = ⟨y xᵀ⟩ Σ⁻¹.
        t: Time, broadcast against W.

    Example:
        >>> import math
        >>> deep_linear_total(torch.ones(1, 1), torch.zeros(1, 1), math.log(4.0))
        tensor([[0.2500]])
    """
    tensor(total, "W(0)")
    tensor(optimum, "W*", shape=tuple(total.shape))
    same_kind(optimum, total, "W*", "W(0)")
    t = tensor(t, "t") if isinstance(t, Tensor) else number(t, "t")
    if isinstance(t, Tensor) and any(
        n not in (1, m) for n, m in zip(reversed(t.shape), reversed(total.shape), strict=False)
    ):
        raise ShapeError(
            f"t must broadcast against W(0), but has shapes {tuple(t.shape)} and "
            f"{tuple(total.shape)}."
        )
    decay = torch.exp(-torch.as_tensor(t, dtype=total.dtype, device=total.device))
    return optimum + decay * (total - optimum)


@named
def singular_times(total: Tensor, optimum: Tensor) -> Tensor:
    """Return the times at which det W(t) = 0 on the line of `deep_linear_total`, increasing.

    det W(t) = 0 if e^{−t}/(1 − e^{−t}) = −μ for an eigenvalue μ of W(0)⁻¹W*: only real negative
    eigenvalues count. If det W(0) = 0 already, only that time is returned.

    Example:
        >>> singular_times(torch.eye(1).double(), -torch.eye(1).double())
        tensor([0.6931], dtype=torch.float64)
    """
    tensor(total, "W(0)", shape=("k", "k"))
    tensor(optimum, "W*", shape=tuple(total.shape))
    same_kind(optimum, total, "W*", "W(0)")
    if total.shape[0] != total.shape[1]:
        raise ShapeError(f"W(0) must be square, but has shape {tuple(total.shape)}.")
    quotient, singular = torch.linalg.solve_ex(total, optimum)
    ratio = 1.0
    if not singular and not bool(torch.isfinite(quotient).all()):
        sizes = total.abs().max(), optimum.abs().max()
        quotient = torch.linalg.solve_ex(total / sizes[0], optimum / sizes[1])[0]
        ratio = float(sizes[0] / sizes[1])
    if singular or not bool(torch.isfinite(quotient).all()):
        return total.new_zeros(1)
    mu = torch.linalg.eigvals(quotient)
    real = mu.real[(mu.imag.abs() <= 1e-12 * mu.abs().max()) & (mu.real < 0)]
    return torch.sort(torch.log1p(-ratio / real)).values
