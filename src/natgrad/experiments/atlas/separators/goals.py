"""The solutions that optimizers could tend to, each with its certificate."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from natgrad.diagnostics import angle
from natgrad.errors import NatgradError
from natgrad.experiments.atlas._flows.directions import log_fisher, scaled
from natgrad.experiments.atlas.separators.config import Table
from natgrad.experiments.atlas.separators.rows import BuiltIn, batch_of
from natgrad.fits import fit_separator
from natgrad.limits import least_squares, max_margin, natural_flow, separability
from natgrad.linalg.norms import Lp, Metric, Norm

KFAC_DAMPING = 0.1
BOX = 2.0
"""1/λ of AdamW: the half width of its box."""
_POLISH = 6  # Newton steps after L-BFGS-B
SCALE = 0.1
"""Initial value of the second factor of diagonal networks; the first starts at zero."""

KINDS = ("separable", "quasi-separable", "not separable")

NORMS = {"ℓ1 margin": 1.0, "ℓ2 margin": 2.0, "ℓ∞ margin": math.inf}
DIAGONAL = "own diagonal metric"
"""The diagonal Fisher's norm: that of the diagonal at the end of its own path."""
GOALS = (*NORMS, "K-FAC metric", "whitened margin", "vertex", "least squares",
         "least squares of depth 2", "box", "maximum likelihood", DIAGONAL)  # fmt: skip
STARS = (*NORMS, "K-FAC metric", "whitened margin", "vertex", "least squares", "maximum likelihood")
"""The goals that the picture shows as stars."""


@dataclass(frozen=True, eq=False)
class Goal:
    """A solution with its certificate, and how near a path is to it.

    A margin problem is min cost(b) subject to yₙ xₙ·b ≥ 1, the cost a norm or c·b. A path's share
    is the least cost over its own, both at a margin of one; for a norm this is the share of the
    largest margin. Without a cost, the share is 1 − ‖β − solution‖/‖solution‖.

    Attributes:
        solution: β, shape `(d,)`; NaN if the data have no such solution.
        certificate: Relative duality gap, or relative optimality residual.
        cost: The cost of a separator; None for points.
        least: The least cost.
    """

    solution: Tensor
    certificate: float
    cost: Callable[[Tensor], float] | None = None
    least: float = math.nan

    def shares(self, path: Tensor, rows: Tensor) -> Tensor:
        """Return the share of each state, at least zero."""
        if self.cost is None:
            near: Tensor = 1 - (path - self.solution).norm(dim=1) / self.solution.norm()
            return near.clamp(min=0)
        unit = path / path.abs().amax(1, keepdim=True).clamp(min=1e-300)
        least = (unit @ rows.mT).amin(1)
        costs = torch.tensor([self.cost(b) for b in unit], dtype=path.dtype)
        return (self.least * least / costs).clamp(min=0)

    def degrees(self, path: Tensor) -> Tensor:
        """Return the angle of each state to the solution."""
        return angle(path, self.solution).rad2deg()


def no_goal(dim: int) -> Goal:
    """Return the goal of data that have none."""
    return Goal(torch.full((dim,), math.nan, dtype=torch.float64), math.nan)


@lru_cache(maxsize=4)
def kind_of(data: BuiltIn | Table) -> str:
    """Return whether the data are separable, quasi-separable or not."""
    return separability(*batch_of(data)).kind


@lru_cache(maxsize=32)
def goal(data: BuiltIn | Table, name: str) -> Goal:
    """Return a goal by name; NaN if the data do not have it, or if it depends on the path."""
    x, y = batch_of(data)
    try:
        return _goal(x, y, name, kind_of(data))
    except NatgradError:  # not separable, or a metric that is not definite
        return no_goal(x.shape[1])


def _goal(x: Tensor, y: Tensor, name: str, kind: str) -> Goal:
    covariance = x.mT @ x / len(x)
    if name in NORMS:
        return _margin(x, y, Lp(NORMS[name]))
    if name == "K-FAC metric":
        return _margin(x, y, Metric(covariance + KFAC_DAMPING * torch.eye(len(covariance)).to(x)))
    if name == "whitened margin":
        return _margin(x, y, Metric(covariance))
    if name == "vertex":
        return _vertex(x, y)
    if name == "least squares":
        found = least_squares(x, y)
        return Goal(found.solution, found.certificate)
    if name == "least squares of depth 2":
        return _deep_least_squares(x, y)
    if name == "box":
        return _in_box(x, y)
    if kind != "not separable" or name == DIAGONAL:
        return no_goal(x.shape[1])
    beta = fit_separator("limit of NGD", x, y).beta
    return Goal(beta, _slope(beta, x, y))


def diagonal_goal(x: Tensor, y: Tensor, end: Tensor) -> Goal:
    """Return the max margin in the norm of the Fisher's diagonal at the end of a path.

    Far along a path the shares of the samples in the Fisher, and with them its diagonal up to a
    factor, no longer change. The flow then is gradient flow in this norm.
    """
    weights = torch.from_numpy(scaled(log_fisher((y * (x @ end)).numpy())))
    try:
        return _margin(x, y, Metric(torch.diag(weights @ x.square())))
    except NatgradError:  # a feature that is zero, or as good as zero
        return no_goal(x.shape[1])


def _margin(x: Tensor, y: Tensor, norm: Norm) -> Goal:
    found = max_margin(x, y, norm)
    return Goal(found.solution, found.certificate, norm, 1 / found.value)


def _vertex(x: Tensor, y: Tensor) -> Goal:
    found = natural_flow(x, y)
    c = 0.5 * (y[:, None] * x).sum(0)
    return Goal(
        found.solution, found.certificate, lambda b: float(c @ b), float(c @ found.solution)
    )


def _slope(beta: Tensor, x: Tensor, y: Tensor) -> float:
    """Return ‖Σ σ(−u) x̃‖ over the sum of the lengths of its terms."""
    rows = y[:, None] * x
    weights = torch.sigmoid(-(rows @ beta))
    return float((weights @ rows).norm() / (weights @ rows.norm(dim=1)))


def _in_box(x: Tensor, y: Tensor) -> Goal:
    """Return the least logistic loss with entries of size at most `BOX`."""
    from scipy.optimize import minimize

    rows = (y[:, None] * x).numpy()

    def loss(b: np.ndarray) -> tuple[float, np.ndarray]:
        u = rows @ b
        slope = -rows.T @ (0.5 * (1 - np.tanh(u / 2))) / len(rows)
        return float(np.logaddexp(0, -u).mean()), slope

    found = minimize(
        loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B",
        bounds=[(-BOX, BOX)] * rows.shape[1], options={"maxiter": 5000, "gtol": 1e-12, "ftol": 0},
    )  # fmt: skip
    b = found.x
    for _ in range(_POLISH):  # Newton's method on the entries inside the box
        slope = loss(b)[1]
        inside = np.abs(np.clip(b - slope, -BOX, BOX)) < BOX
        x_free, u = rows[:, inside], rows @ b
        bend = (x_free.T * (0.25 / np.cosh(u / 2) ** 2 / len(rows))) @ x_free
        step = np.zeros_like(b)
        step[inside] = np.linalg.lstsq(bend, -slope[inside], rcond=None)[0]
        b = np.clip(b + step, -BOX, BOX)
    slope = loss(b)[1]
    free = np.abs(np.clip(b - slope, -BOX, BOX) - b).max()  # zero at a stationary point
    size = float(np.abs(loss(np.zeros_like(b))[1]).max())
    return Goal(torch.from_numpy(b), float(free) / size)


def _deep_least_squares(x: Tensor, y: Tensor) -> Goal:
    """Return the least-squares solution β = φ(Xᵀν) of two factors, w₁ = 0 and w₂ = `SCALE`.

    If the rows are independent, it is the interpolant of least hyperbolic entropy (Woodworth et
    al. 2020); with full column rank there is only one least-squares solution.
    """
    found = least_squares(x, y)
    if int(torch.linalg.matrix_rank(x)) == x.shape[1]:
        return Goal(found.solution, found.certificate)
    target, half = x @ found.solution, SCALE**2 / 2
    nu = torch.zeros(len(x), dtype=x.dtype)
    for _ in range(500):
        z = 2 * (x.mT @ nu)
        miss = target - x @ (half * z.sinh())
        if float(miss.norm()) <= 1e-12 * float(target.norm()):
            break
        step = torch.linalg.lstsq((x * (2 * half * z.cosh())) @ x.mT, miss[:, None]).solution[:, 0]
        nu = nu + step * min(1.0, 0.3 / float((x.mT @ step).abs().max()))
    beta = half * (2 * (x.mT @ nu)).sinh()
    return Goal(beta, float((x @ beta - target).norm() / target.norm()))
