"""Quantities that flows conserve."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from natgrad._named import named
from natgrad.diagnostics._inputs import check_same_length, fits
from natgrad.errors import ShapeError, UnsupportedError
from natgrad.linalg import lstsq
from natgrad.parametrizations import DeepLinear, Diagonal, MatrixProduct, Parametrization


@named
def balancedness(parametrization: Parametrization[Any], params: Any) -> tuple[Tensor, ...]:
    """Return the differences between neighboring layers that gradient flow conserves.

    - `MatrixProduct`, β = W₁⋯W_L: WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ.
    - `DeepLinear`, W = W_L⋯W₁: Wᵢ₊₁ᵀWᵢ₊₁ − WᵢWᵢᵀ.
    - `Diagonal`, β = w₁ ⊙ ⋯ ⊙ w_L: wᵢ² − wᵢ₊₁².

    They are constant along gradient flow for every loss of the product (Arora, Cohen and Hazan
    2018), so their drift measures the error of an integrator. If all are zero, the layers are
    "balanced".

    Args:
        parametrization: One of the three.
        params: Its parameters.

    Returns:
        tuple[Tensor, ...]: L − 1 tensors, from the first pair (W₁, W₂) on.

    Raises:
        UnsupportedError: If the parametrization has no such layers.

    Example:
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
        gaps = [(a - b) * (a + b) for a, b in pairwise(layers)]
    elif isinstance(parametrization, MatrixProduct):
        gaps = [a.mT @ a - b @ b.mT for a, b in pairwise(layers)]
    else:
        gaps = [b.mT @ b - a @ a.mT for a, b in pairwise(layers)]
    # ∞ − ∞ is NaN.
    return tuple(
        fits(torch.where(gap.isnan(), torch.inf, gap), "a balance of layers") for gap in gaps
    )


@named
def off_span(beta: Tensor, x: Tensor) -> Tensor:
    """Return (I − X⁺X)β, the part of β that affects no prediction on the samples, in β's shape.

    It is constant along gradient flow and natural gradient flow of a linear model with direct
    weights.

    Args:
        beta: Coefficients, shape `(…, d)`.
        x: Inputs, shape `(n, d)`.

    Example:
        >>> off_span(torch.tensor([3.0, 4.0]), torch.tensor([[1.0, 0.0]]))
        tensor([0., 4.])
    """
    beta, x = check_same_length(beta, x, ("beta", "X"))
    if x.ndim != 2 or len(x) == 0:
        raise ShapeError(f"X must have shape (n, d), not empty, but has {tuple(x.shape)}.")
    flat = beta.reshape(-1, beta.shape[-1])
    # The lengths of the rows do not matter, and products of long rows would overflow.
    unit = x / torch.where((size := x.abs().amax(1, keepdim=True)) > 0, size, 1.0)
    largest = flat.abs().amax(1, keepdim=True)
    scaled = flat / torch.where(largest > 0, largest, 1.0)
    unseen = scaled - lstsq(unit, unit @ scaled.mT).solution.mT
    return fits(unseen * largest, "the part off the span").reshape(beta.shape)
