"""What flows leave unchanged."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from torch import Tensor

from natgrad.diagnostics.inputs import check_same_length
from natgrad.errors import UnsupportedError
from natgrad.linalg import lstsq
from natgrad.parametrizations import DeepLinear, Diagonal, MatrixProduct, Parametrization


def balancedness(parametrization: Parametrization[Any], params: Any) -> tuple[Tensor, ...]:
    """Return the differences between neighbouring layers that gradient flow conserves.

    - `MatrixProduct`, β = W₁⋯W_L: WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ.
    - `DeepLinear`, W = W_L⋯W₁: Wᵢ₊₁ᵀWᵢ₊₁ − WᵢWᵢᵀ.
    - `Diagonal`, β = w₁ ⊙ ⋯ ⊙ w_L: wᵢ² − wᵢ₊₁².

    Constant along gradient flow for every loss of the product (Arora, Cohen and Hazan 2018), so
    their drift measures an integrator; all zero is "balanced".

    Args:
        parametrization: One of the three.
        params: Its parameters.

    Returns:
        tuple[Tensor, ...]: L − 1 tensors, from the first pair (W₁, W₂) on.

    Raises:
        UnsupportedError: If the parametrization has no such layers.

    Example:
        >>> import torch
        >>> balancedness(Diagonal(2), torch.tensor([[0.0, 1.0], [2.0, 2.0]]))
        (tensor([-4., -3.]),)
    """
    if not isinstance(parametrization, (MatrixProduct, DeepLinear, Diagonal)):
        raise UnsupportedError(
            "balancedness is defined for MatrixProduct, DeepLinear and Diagonal, not for "
            f"{parametrization!r}."
        )
    parametrization.check(params)
    layers: Sequence[Tensor] = tuple(params)
    if isinstance(parametrization, Diagonal):
        return tuple(a.square() - b.square() for a, b in pairwise(layers))
    if isinstance(parametrization, MatrixProduct):
        return tuple(a.mT @ a - b @ b.mT for a, b in pairwise(layers))
    return tuple(b.mT @ b - a @ a.mT for a, b in pairwise(layers))


def off_span(beta: Tensor, x: Tensor) -> Tensor:
    """Return (I − X⁺X)β, the part of β that no datum sees, in the shape of β.

    Constant along gradient flow and natural gradient flow of a linear model with direct weights.

    Args:
        beta: Coefficients, shape `(…, d)`.
        x: Inputs, shape `(n, d)`.

    Example:
        >>> import torch
        >>> off_span(torch.tensor([3.0, 4.0]), torch.tensor([[1.0, 0.0]]))
        tensor([0., 4.])
    """
    check_same_length(beta, x, ("beta", "X"))
    flat = beta.reshape(-1, beta.shape[-1])
    return (flat - lstsq(x, x @ flat.mT).solution.mT).reshape(beta.shape)
