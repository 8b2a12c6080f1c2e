"""The motion of a matrix product under gradient flow of its factors.

Arora, Cohen and Hazan 2018, *On the optimization of deep networks: implicit acceleration by
overparameterization*, Theorem 1: factors that start balanced stay balanced, and then
    dβ/dt = −Σⱼ (ββᵀ)^{(j−1)/L} ∇L(β) (βᵀβ)^{(L−j)/L},  j = 1…L,
an equation in β alone.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from natgrad._checks import describe, integer
from natgrad._named import named
from natgrad.directions._batch import check_problem
from natgrad.directions._euclidean import descent
from natgrad.errors import ShapeError
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import Parametrization

Direction = Callable[[Likelihood, Parametrization[Tensor], Tensor, tuple[Tensor, Tensor]], Tensor]


@named
def end_to_end(depth: int) -> Direction:
    """Return the direction in which gradient flow of a balanced product moves the product.

    Integrated with `Direct` it gives β(t) of gradient flow in L factors that are balanced at the
    start, WᵢᵀWᵢ = Wᵢ₊₁Wᵢ₊₁ᵀ. It conserves the rank of β.

    Args:
        depth: L, the number of factors.

    Raises:
        InvalidInputError: If depth is not a positive integer.

    Example:
        >>> from natgrad import Direct, Gaussian
        >>> x, y = torch.tensor([[0, 0]]), torch.tensor([3.0])
        >>> end_to_end(2)(Gaussian(reduction="sum"), Direct(), torch.eye(2), (x, y))
        tensor([[4., 0.],
                [0., 0.]])
    """
    depth = integer(depth, "depth", low=1)

    def direction(
        likelihood: Likelihood,
        parametrization: Parametrization[Tensor],
        beta: Tensor,
        batch: tuple[Tensor, Tensor],
    ) -> Tensor:
        check_problem(likelihood, parametrization, beta, batch)
        if not isinstance(beta, Tensor) or beta.ndim != 2:
            raise ShapeError(f"end_to_end moves a matrix, but got {describe(beta)}.")
        slope = descent(likelihood, parametrization, beta, *batch)
        u, s, vh = torch.linalg.svd(beta, full_matrices=False)
        total = torch.zeros_like(beta)
        for j in range(1, depth + 1):
            left, right = _power(u, s, (j - 1) / depth), _power(vh.mT, s, (depth - j) / depth)
            term = slope if left is None else left @ slope
            total += term if right is None else term @ right
        return total

    return direction


def _power(vectors: Tensor, s: Tensor, power: float) -> Tensor | None:
    """Return (M Mᵀ)^power from singular vectors and values of M; None is the identity."""
    return None if power == 0 else (vectors * s ** (2 * power)) @ vectors.mT
