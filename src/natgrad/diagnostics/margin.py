"""How far a separator stays away from the data."""

import torch
from torch import Tensor

from natgrad.diagnostics.inputs import check_labelled, check_same_length
from natgrad.errors import InvalidInputError


def margin(beta: Tensor, x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """Return minₙ yₙ xₙ·β / ‖β‖_p; negative if a datum is misclassified.

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


def normalized_margins(beta: Tensor, x: Tensor, y: Tensor, p: float = 2) -> Tensor:
    """Return yₙ xₙ·β / ‖β‖_p of every datum, shape `(…, n)`.

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
    check_labelled(x, y)
    check_same_length(beta, x, ("beta", "X"))
    if isinstance(p, bool) or not p > 0:
        raise InvalidInputError(f"p must be positive (math.inf included), but is {p!r}.")
    # Scaled to a largest entry of one, powers neither overflow nor vanish.
    unit = beta / beta.abs().amax(-1, keepdim=True)
    length: Tensor = torch.linalg.vector_norm(unit, p, dim=-1, keepdim=True)
    return y.to(x.dtype) * (unit @ x.mT) / length
