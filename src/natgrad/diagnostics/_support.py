"""Comparison of the largest coordinates with the true support."""

from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad._checks import dense, integer
from natgrad._named import named
from natgrad.diagnostics._inputs import check_real
from natgrad.errors import DeviceError, InvalidInputError, ShapeError


@dataclass(frozen=True)
class SupportRecovery:
    """The k largest coordinates, compared with the true support.

    Attributes:
        precision: Share of the chosen coordinates that are true; 0 if none was chosen.
        recall: Share of the true coordinates that were chosen.
        exact: Whether the chosen coordinates are exactly the true ones.

    Example:
        >>> SupportRecovery(precision=1.0, recall=0.5, exact=False).recall
        0.5
    """

    precision: float
    recall: float
    exact: bool


@named
def support_recovery(beta: Tensor, true_support: Tensor, k: int | None = None) -> SupportRecovery:
    """Return precision and recall of the k largest |βⱼ|; zeros are never chosen.

    Args:
        beta: Coefficients, shape `(d,)`.
        true_support: Bool mask `(d,)`, or indices of the true coordinates.
        k: Number of coordinates to choose; by default the number of true ones.

    Raises:
        InvalidInputError: If the support is empty or k is out of range.

    Example:
        >>> support_recovery(torch.tensor([3.0, 0.1, -2.0]), torch.tensor([0, 1]))
        SupportRecovery(precision=0.5, recall=0.5, exact=False)
    """
    beta = check_real(beta, "beta")
    if beta.ndim != 1:
        raise ShapeError(f"beta must have shape (d,), but has {tuple(beta.shape)}.")
    truth = _mask(true_support, beta)
    size = int(truth.sum())
    if not size:
        raise InvalidInputError("the true support must not be empty.")
    k = size if k is None else integer(k, "k", low=1, high=len(beta))
    chosen = torch.zeros_like(truth)
    chosen[beta.abs().topk(k).indices] = True
    chosen &= beta != 0
    hits, total = int((chosen & truth).sum()), int(chosen.sum())
    return SupportRecovery(hits / total if total else 0.0, hits / size, hits == total == size)


def _mask(support: Tensor, beta: Tensor) -> Tensor:
    dense(support, "true_support")
    if support.device != beta.device:
        raise DeviceError(
            f"beta is on {beta.device} but true_support on {support.device}; move one with .to()."
        )
    if support.dtype == torch.bool and support.shape == beta.shape:
        return support
    fractional = support.is_floating_point() or support.is_complex()
    if support.dtype == torch.bool or fractional or support.ndim != 1:
        raise ShapeError(
            f"true_support must be a bool mask of shape {tuple(beta.shape)} or a vector of "
            f"indices, but has dtype {support.dtype} and shape {tuple(support.shape)}."
        )
    if len(support) and not (0 <= int(support.min()) and int(support.max()) < len(beta)):
        raise InvalidInputError(f"true_support must hold indices from 0 to {len(beta) - 1}.")
    mask = torch.zeros_like(beta, dtype=torch.bool)
    mask[support.long()] = True
    return mask
