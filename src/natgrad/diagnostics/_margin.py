"""Margins: the distances between a separator and the data."""

import torch
from torch import Tensor

from natgrad._checks import number
from natgrad._named import named
from natgrad.diagnostics._inputs import check_labelled, check_same_length, fits


@named
def margin(beta: Tensor, x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """Return minₙ yₙ xₙ·β / ‖β‖_p; negative if a sample is misclassified.

    Args:
        beta: Separators, shape `(…, d)`.
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1, shape `(n,)`.
        p: Any p > 0, or `math.inf`. For p < 1, ‖·‖_p is the quasi-norm (Σ|βⱼ|^p)^{1/p}.

    Returns:
        Tensor: Shape `(…)`; NaN for β = 0.

    Example:
        >>> x, y = torch.tensor([[3.0, 0.0], [0.0, -4.0]]), torch.tensor([1.0, -1.0])
        >>> margin(torch.tensor([1.0, 1.0]), x, y, p=1)
        tensor(1.5000)
    """
    return normalized_margins(beta, x, y, p).min(-1).values


@named
def normalized_margins(beta: Tensor, x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """Return yₙ xₙ·β / ‖β‖_p of every sample, shape `(…, n)`; NaN where β is zero.

    Args:
        beta: Separators, shape `(…, d)`.
        x: Inputs, shape `(n, d)`.
        y: Labels −1 and +1, shape `(n,)`.
        p: Any p > 0, or `math.inf`.

    Raises:
        InvalidInputError: If p is not positive.

    Example:
        >>> x, y = torch.tensor([[3.0, 0.0], [0.0, -4.0]]), torch.tensor([1.0, -1.0])
        >>> normalized_margins(torch.tensor([1.0, 1.0]), x, y, p=float("inf"))
        tensor([3., 4.])
    """
    x, y = check_labelled(x, y)
    beta, x = check_same_length(beta, x, ("beta", "X"))
    p = number(p, "p", low=0, low_open=True, infinite=True)
    # Scaled to a largest entry of one, so that powers neither overflow nor underflow.
    unit = beta / beta.abs().amax(-1, keepdim=True)
    length: Tensor = torch.linalg.vector_norm(unit, p, dim=-1, keepdim=True)
    size = x.abs().max()
    size = torch.where(size > 0, size, 1.0)
    return fits(y.to(x.dtype) * (unit @ (x / size).mT) / length * size, "a margin")
