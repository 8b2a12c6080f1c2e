"""K-FAC of one linear layer."""

from typing import Any

from torch import Tensor

from natgrad._checks import number
from natgrad._named import named
from natgrad.errors import UnsupportedError
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.turned import Turned
from natgrad.linalg._powers import damped_power


@named
def kfac(
    size: float, *, damping: float = 0.0, class_damping: float = 0.0, decay: float = 0.0
) -> StepRule:
    """Return the steps of K-FAC (Martens and Grosse 2015) for one linear layer, `Direct`.

    The Fisher of outputs xₙᵀB is approximated by A ⊗ G, A = ⟨xₙxₙᵀ⟩ and G = ⟨F(fₙ)⟩, and the
    direction V becomes (A + λ)⁻¹ V (G + μ)⁻¹. Exact for Gaussian noise without damping.

    On separable data with one output, B tends to the max margin in the (A + λ)-norm. With several
    classes this needs `class_damping`: G + μ then tends to μ. For μ = 0 class directions may grow
    at different speeds, and no such limit is known. For networks use `natgrad.NGD`.

    Args:
        size: Length η of the first step.
        damping: λ ≥ 0, added to A.
        class_damping: μ ≥ 0, added to G; without it the inverse of G is its pseudo-inverse.
        decay: Steps are η k^{−decay}.

    Example:
        >>> kfac(0.1, damping=0.01)
        Kfac(size=0.1, decay=0.0, damping=0.01, class_damping=0.0)
    """
    return Kfac(size, damping, class_damping, decay)


class Kfac(Turned):
    """Steps along the direction between the inverses of two factors."""

    def __init__(self, size: float, damping: float, class_damping: float, decay: float) -> None:
        super().__init__(size, decay)
        self.damping = number(damping, "damping", low=0)
        self.class_damping = number(class_damping, "class_damping", low=0)

    def turn(self, problem: Problem[Any], params: Any, v: list[Tensor]) -> list[Tensor]:
        """Return (A + λ)⁻¹ V (G + μ)⁻¹ over the samples of the step."""
        x = problem.batch[0]
        (direction,) = v if len(v) == 1 else (None,)
        if direction is None or not x.is_floating_point() or direction.shape[0] != x.shape[1]:
            raise UnsupportedError(
                "kfac steps one linear layer, Direct with real inputs, not "
                f"{problem.parametrization!r}. For networks use natgrad.NGD."
            )
        outputs = problem.parametrization.predict(params, x).reshape(len(x), -1)
        scale = problem.weight * problem.likelihood.scale(len(x)) * len(x)
        left = damped_power(x.mT @ x / len(x), self.damping)
        right = damped_power(scale * problem.likelihood.mean_fisher(outputs), self.class_damping)
        turned = left @ direction.reshape(x.shape[1], -1) @ right
        return [turned.reshape(direction.shape)]
