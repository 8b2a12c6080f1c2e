"""Runge–Kutta–Chebyshev of second order: explicit, with a stability interval that grows as s².

Sommeijer, Shampine and Verwer 1998, *RKC: an explicit solver for parabolic PDEs*. For flows whose
Jacobian has (nearly) real negative eigenvalues, as gradient flows have, s evaluations reach a step
of 0.65 s²/λ where an explicit Runge–Kutta method needs one evaluation for every 2/λ or 3/λ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

Field = Callable[[float, Tensor], Tensor]
"""dy/dt as a function of time and state."""

_DAMPING = 2 / 13


@dataclass(frozen=True)
class Coefficients:
    """Recurrence coefficients for s stages, lists indexed by stage j = 2…s (offset 2)."""

    first: float
    mu: tuple[float, ...]
    nu: tuple[float, ...]
    mu_tilde: tuple[float, ...]
    gamma_tilde: tuple[float, ...]
    c: tuple[float, ...]  # abscissae c₀…c_s


@lru_cache(maxsize=1024)
def coefficients(s: int) -> Coefficients:
    """Return the coefficients of the s-stage method, s ≥ 2."""
    w0 = 1 + _DAMPING / s**2
    t, dt, ddt = _chebyshev(s, w0)
    w1 = dt[s] / ddt[s]
    b = [0.0, 0.0] + [ddt[j] / dt[j] ** 2 for j in range(2, s + 1)]
    b[0] = b[1] = b[2]
    a = [1 - b[j] * t[j] for j in range(s + 1)]
    stages = range(2, s + 1)
    c = [0.0, 0.0] + [w1 * ddt[j] / dt[j] for j in stages]
    c[1] = c[2] / dt[2]
    return Coefficients(
        first=b[1] * w1,
        mu=tuple(2 * b[j] * w0 / b[j - 1] for j in stages),
        nu=tuple(-b[j] / b[j - 2] for j in stages),
        mu_tilde=tuple(2 * b[j] * w1 / b[j - 1] for j in stages),
        gamma_tilde=tuple(-a[j - 1] * 2 * b[j] * w1 / b[j - 1] for j in stages),
        c=tuple(c),
    )


def _chebyshev(s: int, x: float) -> tuple[list[float], list[float], list[float]]:
    """Return T_j(x), T_j′(x), T_j″(x) for j = 0…s."""
    t, dt, ddt = [1.0, x], [0.0, 1.0], [0.0, 0.0]
    for _ in range(2, s + 1):
        t.append(2 * x * t[-1] - t[-2])
        dt.append(2 * t[-2] + 2 * x * dt[-1] - dt[-2])
        ddt.append(4 * dt[-2] + 2 * x * ddt[-1] - ddt[-2])
    return t, dt, ddt


def stages(step: float, radius: float) -> int:
    """Return the number of stages that makes a step stable for a spectral radius."""
    return 1 + math.ceil(math.sqrt(1 + 1.54 * step * radius))


def rkc_step(field: Field, t: float, y: Tensor, h: float, f0: Tensor, s: int) -> Tensor:
    """Return the state after one step of length h with s ≥ 2 stages; s − 1 evaluations.

    Args:
        field: dy/dt.
        t: Time at the start.
        y: State at the start.
        h: Step.
        f0: field(t, y).
        s: Stages.
    """
    k = coefficients(s)
    before, now = y, y + (k.first * h) * f0
    before = before.clone()
    for i in range(s - 1):
        f = field(t + k.c[i + 1] * h, now)
        after = before.mul_(k.nu[i]).add_(now, alpha=k.mu[i])
        after.add_(y, alpha=1 - k.mu[i] - k.nu[i])
        after.add_(f, alpha=k.mu_tilde[i] * h).add_(f0, alpha=k.gamma_tilde[i] * h)
        before, now = now, after
    return now


def local_error(y0: Tensor, y1: Tensor, h: float, f0: Tensor, f1: Tensor) -> Tensor:
    """Return the estimate of the local error, of third order."""
    return 0.8 * (y0 - y1) + 0.4 * h * (f0 + f1)


class SpectralRadius:
    """An upper estimate of the spectral radius by nonlinear power iteration, warm-started."""

    def __init__(self) -> None:
        self._vector: Tensor | None = None
        self.value = 0.0
        self.evaluations = 0

    def update(self, field: Field, t: float, y: Tensor, f0: Tensor, rounds: int = 30) -> float:
        """Return 1.2 × the estimate at (t, y), given f0 = field(t, y)."""
        vector = f0 if self._vector is None else self._vector
        norm = float(torch.linalg.vector_norm(vector))
        if norm == 0:
            vector = torch.ones_like(y)
            norm = float(torch.linalg.vector_norm(vector))
        eps = torch.finfo(y.dtype).eps
        size = math.sqrt(eps) * max(float(torch.linalg.vector_norm(y)), math.sqrt(eps))
        estimate = 0.0
        for k in range(rounds):
            difference = field(t, y + (size / norm) * vector) - f0
            self.evaluations += 1
            norm = float(torch.linalg.vector_norm(difference))
            previous, estimate = estimate, norm / size
            vector = difference
            if norm == 0 or (k > 0 and abs(estimate - previous) <= 0.05 * estimate):
                break
        self._vector = vector if norm > 0 else None
        self.value = 1.2 * estimate
        return self.value
