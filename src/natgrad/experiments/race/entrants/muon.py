"""Muon with a Newton–Schulz iteration in float32; torch's own has it in bfloat16, slow on a CPU."""

import math
from collections.abc import Iterable

import torch
from torch import Tensor


@torch.no_grad()
def orthogonalized(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Return a matrix with the same singular vectors and all singular values near one.

    The quintic iteration and coefficients of Jordan et al. (2024), which settle between about 0.7
    and 1.2 rather than at one.

    Example:
        >>> x = orthogonalized(torch.tensor([[3.0, 0.0], [0.0, 0.5]]))
        >>> bool(((x.diagonal() > 0.6) & (x.diagonal() < 1.3)).all())
        True
    """
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.mT if tall else matrix
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(iterations):
        gram = x @ x.mT
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum whose steps are orthogonal matrices (Jordan et al. 2024).

    A weight with more than two axes is flattened to a matrix, its first axis the rows. Steps are
    √(rows/columns) times longer where there are more rows than columns.

    Args:
        params: Weights with two axes or more.
        lr: Learning rate.
        momentum: Nesterov momentum.

    Example:
        >>> w = torch.zeros(2, 2, requires_grad=True)
        >>> optimizer = Muon([w], lr=0.1)
        >>> (w.diagonal().sum()).backward()
        >>> optimizer.step()
        >>> bool((w.diagonal() < -0.05).all())
        True
    """

    def __init__(self, params: Iterable[Tensor], lr: float, momentum: float = 0.95) -> None:
        super().__init__(list(params), {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step from the gradients."""
        for group in self.param_groups:
            momentum = group["momentum"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                held = state.setdefault("momentum", torch.zeros_like(p))
                held.lerp_(p.grad, 1 - momentum)
                update = p.grad.lerp(held, momentum).flatten(1)
                longer = math.sqrt(max(1.0, update.shape[0] / update.shape[1]))
                p.add_(orthogonalized(update).view_as(p), alpha=-group["lr"] * longer)
