"""A linearly implicit method of third order, for steps that are stiff in few directions.

RODAS3 (Sandu, Verwer, Blom, Spee, Carmichael and Potra 1997, *Benchmarking stiff ODE solvers for
atmospheric chemistry problems II*): four stages, three evaluations and one factorization; L-stable
and stiffly accurate, so that modes which have decayed stay decayed whatever the step.
"""

from collections.abc import Callable

from torch import Tensor

from natgrad.flows._methods.steppers.rkc import Field

Shifted = Callable[[float], Callable[[Tensor], Tensor]]
"""From a > 0 to the solver of (a I − J) k = r, J the Jacobian of the field at the start."""

_GAMMA = 0.5


def rodas_step(
    field: Field,
    t: float,
    y: Tensor,
    h: float,
    f0: Tensor,
    shifted: Shifted,
    time_derivative: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return the state after one step of length h, and the estimate of its error; 2 evaluations.

    Args:
        field: dy/dt.
        t: Time at the start.
        y: State at the start.
        h: Step.
        f0: field(t, y).
        shifted: Solves with a I − ∂ field/∂y at the start.
        time_derivative: ∂ field/∂t at the start.
    """
    solve = shifted(1 / (h * _GAMMA))
    drift = h * time_derivative
    k1 = solve(f0 + 0.5 * drift)
    k2 = solve(f0 + (4 / h) * k1 + 1.5 * drift)
    k3 = solve(field(t + h, y + 2 * k1) + (k1 - k2) / h)
    k4 = solve(field(t + h, y + 2 * k1 + k3) + (k1 - k2 - (8 / 3) * k3) / h)
    return y + 2 * k1 + k3 + k4, k4
