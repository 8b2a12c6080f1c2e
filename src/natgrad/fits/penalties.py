"""Penalized logistic regression along a path of strengths: what flows compete with in practice."""

from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad._checks import integer, tensor
from natgrad.errors import InvalidInputError, LabelError

__all__ = ["fit_penalty"]

Floats = npt.NDArray[np.float64]

_NEWTON = 60  # steps of Newton's method at one strength
_INNER = 400  # steps of the proximal method on one quadratic
_ACCURATE = 1e-7  # largest violation of optimality, relative to the gradient at zero


def fit_penalty(
    p: Literal[1, 2], x: Tensor, y: Tensor, strengths: Tensor, *, free: int = 0
) -> Tensor:
    """Return argmin of mean log(1 + e^{−yₙ xₙ·β}) + λ‖β‖₁ or λ‖β‖²/2, for every λ.

    Newton's method from each strength to the next; for p = 1 with a proximal method on each
    quadratic.

    Args:
        p: 1 or 2.
        x: Inputs, float64, `(n, d)`.
        y: Labels ±1, `(n,)`.
        strengths: Decreasing positive λ, float64, `(m,)`.
        free: How many of the first features carry no penalty, such as an intercept.

    Returns:
        Tensor: β by strength, `(m, d)`.

    Raises:
        InvalidInputError: If an argument cannot be used.

    Example:
        >>> x = torch.tensor([[1.0, 0.2], [0.5, -0.9], [-1.0, 0.9]], dtype=torch.float64)
        >>> y = torch.tensor([1.0, 1.0, -1.0], dtype=torch.float64)
        >>> path = fit_penalty(1, x, y, torch.tensor([0.1, 0.01], dtype=torch.float64))
        >>> (path != 0).tolist()
        [[True, False], [True, True]]
    """
    p = integer(p, "p", low=1, high=2)  # type: ignore[assignment]
    x = tensor(x, "x", shape=("n", "d"), dtypes=(torch.float64,))
    y = tensor(y, "y", shape=(len(x),), dtypes=(torch.float64,))
    if not bool((y.abs() == 1).all()):
        raise LabelError("y must hold only the labels -1 and 1.")
    strengths = tensor(strengths, "strengths", shape=("m",), dtypes=(torch.float64,))
    if len(strengths) == 0 or float(strengths[-1]) <= 0 or bool((strengths.diff() >= 0).any()):
        raise InvalidInputError("strengths must be positive and decreasing.")
    free = integer(free, "free", low=0, high=x.shape[1])
    problem = _Problem(x.numpy(), y.numpy(), free)
    beta, path = np.zeros(x.shape[1]), []
    for strength in strengths.tolist():
        beta = problem.minimize(beta, strength, p)
        path.append(beta)
    return torch.from_numpy(np.stack(path))


class _Problem:
    """The mean logistic loss of signed rows, and the features without a penalty."""

    def __init__(self, x: Floats, y: Floats, free: int) -> None:
        self.rows = x * y[:, None]
        self.held = np.arange(x.shape[1]) >= free
        slope = self.rows.mean(axis=0) / 2
        self.accuracy = _ACCURATE * (float(np.abs(slope).max()) or 1.0)

    def loss(self, beta: Floats) -> float:
        return float(np.logaddexp(0, -(self.rows @ beta)).mean())

    def slopes(self, beta: Floats) -> tuple[Floats, Floats]:
        """Return the gradient and the Hessian of the loss."""
        margin = np.clip(self.rows @ beta, -500, 500)
        wrong = 1 / (1 + np.exp(margin))
        n = len(self.rows)
        weighted = self.rows * (wrong * (1 - wrong) / n)[:, None]
        return -self.rows.T @ wrong / n, weighted.T @ self.rows

    def penalty(self, beta: Floats, strength: float, p: int) -> float:
        part = beta[self.held]
        return strength * float(np.abs(part).sum() if p == 1 else part @ part / 2)

    def minimize(self, beta: Floats, strength: float, p: int) -> Floats:
        """Return the minimizer from a nearby start: Newton's method with step halving."""
        value = self.loss(beta) + self.penalty(beta, strength, p)
        for _ in range(_NEWTON):
            gradient, hessian = self.slopes(beta)
            if self.violation(beta, gradient, strength, p) <= self.accuracy:
                break
            hessian[np.diag_indices_from(hessian)] += 1e-10 * (hessian.trace() / len(beta) + 1e-30)
            if p == 2:
                full = hessian + strength * np.diag(self.held.astype(np.float64))
                step = -np.linalg.solve(full, gradient + strength * beta * self.held)
            else:
                step = self.proximal(beta, gradient, hessian, strength) - beta
            length, before = 1.0, value
            while length > 1e-6:
                trial = beta + length * step
                value = self.loss(trial) + self.penalty(trial, strength, p)
                if value <= before:
                    break
                length /= 2
            else:
                return beta  # rounding error: no step lowers the value
            beta = trial
        return beta

    def violation(self, beta: Floats, gradient: Floats, strength: float, p: int) -> float:
        """Return how far the optimality conditions are from holding."""
        if p == 2:
            return float(np.abs(gradient + strength * beta * self.held).max())
        pull = strength * self.held
        moved = np.where(beta != 0, gradient + pull * np.sign(beta), 0.0)
        rest = np.where(beta == 0, np.maximum(np.abs(gradient) - pull, 0.0), 0.0)
        return float(max(np.abs(moved).max(), rest.max()))

    def proximal(self, start: Floats, gradient: Floats, hessian: Floats, strength: float) -> Floats:
        """Return the minimizer of the quadratic model plus λ‖β‖₁ (FISTA with restarts)."""
        rate = 1 / float(np.linalg.eigvalsh(hessian)[-1])
        shrink = rate * strength * self.held
        linear = gradient - hessian @ start
        beta, ahead, momentum = start, start, 1.0
        for _ in range(_INNER):
            moved = ahead - rate * (hessian @ ahead + linear)
            new: Floats = np.sign(moved) * np.maximum(np.abs(moved) - shrink, 0)
            change = new - beta
            if np.abs(change).max() <= 1e-10 * (1 + np.abs(new).max()):
                return new
            if (ahead - new) @ change > 0:
                momentum = 1.0
            following = (1 + (1 + 4 * momentum**2) ** 0.5) / 2
            ahead = new + (momentum - 1) / following * change
            beta, momentum = new, following
        return beta
