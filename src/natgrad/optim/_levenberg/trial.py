"""One trial: the damped direction, its acceleration, and the decrease that it predicts."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.optim._levenberg.linearization import Linearization
from natgrad.optim._levenberg.problem import Values
from natgrad.optim._levenberg.rule import Nielsen
from natgrad.optim._levenberg.solve import Side

__all__ = ["Proposal", "propose", "straight"]

# Fraction of the step at which the second derivative along it is measured (Transtrum and Sethna).
_PROBE = 0.1
# Relative error of a that is small beside that of the difference quotient.
_ROUGH = 1e-6
# Largest number of dampings that one step tries to make its path straight enough; fewer with
# momentum, which bends at any damping if it leads astray.
_BENDS = 12
_CARRIED_BENDS = 5


@dataclass(frozen=True)
class Proposal:
    """A change of the parameters.

    Attributes:
        step: δ = v + a/2.
        predicted: Decrease of the linear model along v.
        acceleration: 2 |a| / |v| in the metric of the damping.
    """

    step: Tensor
    predicted: float
    acceleration: float

    def bends(self, most: float) -> bool:
        """Return whether the path bends more than this; 0 allows everything."""
        return self.acceleration > most > 0

    def fraction(self, most: float) -> float:
        """Return how much the path bends, as a fraction of the most that is allowed."""
        return self.acceleration / most if most else 0.0

    def promises(self, loss: float) -> bool:
        """Return whether the predicted decrease is above the rounding of a loss."""
        return self.predicted > torch.finfo(self.step.dtype).eps * loss


def straight(
    point: Linearization,
    side: Side,
    rule: Nielsen,
    scale: Tensor | None,
    probe: Callable[[Tensor], Values | None] | None,
    most: float,
    momentum: Tensor | None,
) -> tuple[Proposal, float]:
    """Return a step whose path bends at most so much, and its λ, which grows until it does."""
    for _ in range(_BENDS if momentum is None else _CARRIED_BENDS):
        assert rule.value is not None
        damping = rule.value
        proposal = propose(point, side, damping, scale, momentum=momentum, probe=probe)
        if not proposal.bends(most):
            break
        rule.rejected()
    return proposal, damping


def propose(
    point: Linearization,
    side: Side,
    damping: float,
    scale: Tensor | None,
    *,
    momentum: Tensor | None,
    probe: Callable[[Tensor], Values | None] | None,
) -> Proposal:
    """Return v with its geodesic acceleration a.

    v minimizes |A v − t|² + λ |D (v − μp)|², with p the last step: SPRING's rule; μp = 0 is
    Levenberg–Marquardt. a minimizes |A a + r″|² + λ |D a|², with r″ the second derivative of the
    (weighted) values along v, from one further evaluation a tenth of the way along v (Transtrum
    and Sethna 2012, "Improvements to the Levenberg–Marquardt algorithm").

    Args:
        point: The problem.
        side: Solves it.
        damping: λ.
        scale: The diagonal of D.
        momentum: μp, or None.
        probe: Returns the values at a change of the parameters, None where they are not finite;
            without it there is no acceleration.
    """
    target = point.whitening.target
    if momentum is None:
        v, moved = side.solve_and_move(target, damping)
    else:
        carried = point.jacobian.times(momentum)
        v, moved = side.solve_and_move(target - carried, damping)
        v, moved = momentum + v, carried + moved
    predicted = float(moved @ target - 0.5 * moved @ moved)
    if probe is None:
        return Proposal(v, predicted, 0.0)
    there = probe(_PROBE * v)
    if there is None:
        return Proposal(v, predicted, float("inf"))
    change = point.whitening.apply(there) - point.whitening.apply(point.values)
    second = (2 / _PROBE) * (change / _PROBE - moved)
    a = side.solve(-second, damping, _ROUGH)
    length = _norm(v, scale)
    bend = 2 * _norm(a, scale) / length if length else 0.0
    return Proposal(v + 0.5 * a, predicted, bend if torch.isfinite(a).all() else float("inf"))


def _norm(v: Tensor, scale: Tensor | None) -> float:
    return float((v if scale is None else scale * v).norm())
