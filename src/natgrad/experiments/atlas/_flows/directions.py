"""Directions of flows of logistic regression, up to a factor, from logarithms of all weights.

`arc_path` of `natgrad.flows` follows them. Unlike those of `natgrad.natural`, damping and
metrics here are logarithms too, so that nothing underflows at any length of the path.
"""

import numpy as np
from scipy.linalg import cho_factor, cho_solve, qr, solve_triangular

from natgrad.flows._by_length import Vector, Velocity

_NEGLIGIBLE = 35.0  # e^{−35} is below the rounding error of one
_GAP = 20.0


def softplus(u: Vector) -> Vector:
    """Return log(1 + eᵘ)."""
    return np.logaddexp(0, u)


def log_loss(u: Vector) -> float:
    """Return the logarithm of the mean logistic loss at margins u, also where it underflows."""
    logs = np.where(u > 30, -u, np.log(softplus(-np.minimum(u, 30.0))))
    return float(np.logaddexp.reduce(logs) - np.log(len(u)))


def log_pull(u: Vector) -> Vector:
    """Return log σ(−u): the weights of samples in the gradient."""
    return -softplus(u)


def log_fisher(u: Vector) -> Vector:
    """Return log σ(u)σ(−u): the weights of samples in the Fisher."""
    return -softplus(u) - softplus(-u)


def scaled(logs: Vector) -> Vector:
    """Return weights with the largest one."""
    found: Vector = np.exp(logs - logs.max())
    return found


def pull(rows: Vector, u: Vector) -> Vector:
    """Return −∇L up to a factor."""
    return rows.T @ scaled(log_pull(u))


def damped_natural(rows: Vector, damping: float, power: float) -> Velocity:
    """Return (F + λ)⁻¹g with λ = λ₀ Lᵃ and the mean logistic loss; rows are yₙxₙ.

    Example:
        >>> v = damped_natural(np.eye(2), 0.0, 0.0)(np.zeros(2))
        >>> (v / v[0]).tolist()
        [1.0, 1.0]
    """
    n = len(rows)

    def velocity(b: Vector) -> Vector:
        u = rows @ b
        logs = log_fisher(u)
        ridge = -np.inf
        if damping > 0:
            ridge = np.log(damping) + np.log(n) + power * log_loss(u)
        if ridge - logs.max() > _NEGLIGIBLE:
            return pull(rows, u)
        return weighted_solve(rows, logs, log_pull(u) - logs, ridge)

    return velocity


def metric_natural(rows: Vector, kappa: float) -> Velocity:
    """Return (X̃ᵀMX̃)⁻¹g for the metric M = (p(1 − p))^κ on the outputs: κ = 1 is the Fisher."""
    if kappa == 0:  # M = 1: one factorization serves the whole path
        q, r, pivots = qr(rows, mode="economic", pivoting=True)

        def constant(b: Vector) -> Vector:
            v = np.empty(rows.shape[1])
            pulled = q.T @ scaled(log_pull(rows @ b))
            v[pivots] = solve_triangular(r, pulled, check_finite=False)
            return v

        return constant

    def velocity(b: Vector) -> Vector:
        u = rows @ b
        logs = kappa * log_fisher(u)
        return weighted_solve(rows, logs, log_pull(u) - logs, -np.inf)

    return velocity


MEANS = ("geometric", "logarithmic", "arithmetic")
"""Means θ of p and 1 − p whose metrics (p(1 − p))²/θ fall faster than the Fisher."""


def mean_natural(rows: Vector, mean: str) -> Velocity:
    """Return (X̃ᵀMX̃)⁻¹g for the Wasserstein metric M = (p(1 − p))²/θ of two nodes.

    For the means of `MEANS`, and as many rows as columns or more. A row whose margin exceeds the
    D-th smallest by u has the influence e^{−u} on the others; margins are cut where it is
    negligible, so that no target underflows at any length.

    Example:
        >>> v = mean_natural(np.eye(2), "arithmetic")(np.array([0.0, 1e4]))
        >>> (v / v.max()).tolist()
        [0.0, 1.0]
    """
    d = rows.shape[1]

    def velocity(b: Vector) -> Vector:
        u = rows @ b
        u = np.minimum(u, np.partition(u, d - 1)[d - 1] + 2 * _NEGLIGIBLE)
        logs = (1.5 if mean == "geometric" else 2.0) * log_fisher(u)
        if mean == "logarithmic":  # θ = tanh(u/2)/u
            far = np.maximum(np.abs(u), 1e-6)
            logs = logs + np.log(far / np.tanh(far / 2))
        return weighted_solve(rows, logs, log_pull(u) - logs, -np.inf)

    return velocity


def weighted_solve(rows: Vector, log_metric: Vector, log_ratio: Vector, log_ridge: float) -> Vector:
    """Return (X̃ᵀMX̃ + λ)⁻¹ X̃ᵀMr up to a factor; M, r and λ are given by their logarithms.

    This is least squares with rows √M x̃, targets √M r and a ridge √λ. Where weights have very
    different sizes, they form a hierarchy, in which only their order matters: gaps of more than
    e²⁰ are shortened to e²⁰, whose square is below rounding error. Rows are sorted and the
    factorization pivots; Householder's is then accurate row by row.
    """
    d = rows.shape[1]
    half = _closer(np.append(log_metric, log_ridge) / 2)
    weights, ridge = np.exp(half[:-1]), np.exp(half[-1])
    targets = np.exp(log_ratio - log_ratio.max())
    a = weights[:, None] * rows
    b = weights * targets
    if ridge > 1e-3:
        factor = cho_factor(a.T @ a + ridge**2 * np.eye(d), check_finite=False)
        solved: Vector = cho_solve(factor, a.T @ b, check_finite=False)
        return solved
    if ridge > 0:
        a = np.vstack([a, ridge * np.eye(d)])
        b = np.concatenate([b, np.zeros(d)])
        weights = np.concatenate([weights, np.full(d, ridge)])
    order = np.argsort(-weights, kind="stable")
    q, r, pivots = qr(a[order], mode="economic", pivoting=True, check_finite=False)
    v = np.empty(d)
    v[pivots] = solve_triangular(r, q.T @ b[order], check_finite=False)
    return v


def _closer(levels: Vector) -> Vector:
    """Return levels with the largest at zero and gaps of at most `_GAP`; −∞ stays."""
    order = np.argsort(-levels)
    sorted_levels = levels[order]
    gaps = np.minimum(sorted_levels[:-1] - sorted_levels[1:], _GAP)
    found = np.empty_like(levels)
    found[order] = np.concatenate([[0.0], -np.cumsum(gaps)])
    found[np.isneginf(levels)] = -np.inf
    return found
