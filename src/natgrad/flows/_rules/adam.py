"""Adam, and AdamW."""

from typing import Any

from torch import Tensor

from natgrad._checks import number
from natgrad._named import named
from natgrad.flows._problem import Problem
from natgrad.flows._rules.base import StepRule
from natgrad.flows._rules.turned import Turned
from natgrad.parametrizations.base import leaves


@named
def adam(
    size: float,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decay: float = 0.0,
) -> StepRule:
    """Return the steps of Adam (Kingma and Ba 2015), as `torch.optim.Adam` takes them.

    With `descend(batch_size=1, order="cyclic")` this is the per-sample Adam that leaves the ℓ∞
    margin (arXiv 2510.26303). A positive ε soon dominates: on separable data gradients
    vanish, and then Adam is gradient descent with momentum.

    With `weight_decay=λ` it is AdamW (Loshchilov and Hutter 2019), as `torch.optim.AdamW` takes its
    steps: each also shrinks the parameters by ηλ. If AdamW converges, then to a stationary point of
    the loss in the box of entries of size at most 1/λ (arXiv 2404.04454).

    Args:
        size: Length η of the first step.
        beta1: Share of the average direction that is kept.
        beta2: Share of the average square that is kept.
        eps: ε ≥ 0, added to the root of the average square.
        weight_decay: λ ≥ 0, the share of the parameters that a step of length one removes.
        decay: Steps are η k^{−decay}.

    Example:
        >>> adam(0.01, eps=0.0)
        Adam(size=0.01, decay=0.0, beta1=0.9, beta2=0.999, eps=0.0, weight_decay=0.0)
    """
    return Adam(size, (beta1, beta2), eps, weight_decay, decay)


class Adam(Turned):
    """Steps along an average direction, each entry divided by its root mean square."""

    def __init__(
        self,
        size: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
        decay: float,
    ) -> None:
        super().__init__(size, decay)
        self.beta1 = number(betas[0], "beta1", low=0, high=1, high_open=True)
        self.beta2 = number(betas[1], "beta2", low=0, high=1, high_open=True)
        self.eps = number(eps, "eps", low=0)
        self.weight_decay = number(weight_decay, "weight_decay", low=0)

    def turn(self, problem: Problem[Any], params: Any, v: list[Tensor]) -> list[Tensor]:
        """Return m̂/(√v̂ + ε) − λw, averages corrected for their start at zero; 0/0 is 0."""
        m = self.averaged("m", v, self.beta1, 1 - self.beta1)
        s = self.averaged("s", [a.square() for a in v], self.beta2, 1 - self.beta2)
        first, second = 1 - self.beta1**self.count, 1 - self.beta2**self.count
        roots = [(b / second).sqrt() + self.eps for b in s]
        along = [
            (a / first / root).where(root > 0, root.new_zeros(()))
            for a, root in zip(m, roots, strict=True)
        ]
        if self.weight_decay == 0:
            return along
        return [a - self.weight_decay * w for a, w in zip(along, leaves(params), strict=True)]
