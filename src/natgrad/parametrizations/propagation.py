"""Covariance propagation and the layerwise natural gradient of [BLH18] §3–6.

The layerwise form (10) is the exact natural gradient where every partial product is invertible.
With pseudo-inverses it obeys (19) instead. `natural(…, selection="equal_share")` refuses that case.
These functions do not, because the optimizer and the theorems need the printed form.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from natgrad.linalg import lstsq
from natgrad.linalg._precision import default_rtol

__all__ = [
    "backward_covariances",
    "errors_through_inverses",
    "forward_covariances",
    "layerwise_direction",
    "rank_one_direction",
]


def forward_covariances(params: Sequence[Tensor], sigma: Tensor) -> list[Tensor]:
    """Return Λᵢ = ⟨xᵢ₋₁ xᵢ₋₁ᵀ⟩ for i = 1…L, given Σ = ⟨x xᵀ⟩. [BLH18] (15).

    Example:
        >>> w = (torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0]]))
        >>> [c.tolist() for c in forward_covariances(w, torch.eye(2))]
        [[[1.0, 0.0], [0.0, 1.0]], [[4.0]]]
    """
    covariances = [sigma]
    for w in params[:-1]:
        covariances.append(w @ covariances[-1] @ w.mT)
    return covariances


def backward_covariances(params: Sequence[Tensor], precision: Tensor) -> list[Tensor]:
    """Return Λ̃ᵢ = ⟨eᵢ eᵢᵀ⟩ for i = 1…L, given the output Fisher Σ̃⁻¹. [BLH18] (14).

    Example:
        >>> w = (torch.tensor([[2.0, 0.0]]), torch.tensor([[3.0]]))
        >>> [c.tolist() for c in backward_covariances(w, torch.eye(1))]
        [[[9.0]], [[1.0]]]
    """
    covariances = [precision]
    for w in reversed(params[1:]):
        covariances.append(w.mT @ covariances[-1] @ w)
    return covariances[::-1]


def layerwise_direction(
    descent: Sequence[Tensor],
    errors: Sequence[Tensor],
    inputs: Sequence[Tensor],
    *,
    rtol: float | None = None,
) -> list[Tensor]:
    """Return (1/L) Λ̃ᵢ⁺ ⟨eᵢ xᵢ₋₁ᵀ⟩ Λᵢ⁺ for every layer. [BLH18] (10).

    Args:
        descent: ⟨eᵢ xᵢ₋₁ᵀ⟩, minus the gradient, of every layer.
        errors: Λ̃ᵢ of every layer.
        inputs: Λᵢ of every layer.
        rtol: Relative cut-off of the pseudo-inverses.

    Example:
        >>> eye = torch.eye(2)
        >>> layerwise_direction([eye], [2 * eye], [4 * eye])[0]
        tensor([[0.1250, 0.0000],
                [0.0000, 0.1250]])
    """
    return [
        lstsq(b, lstsq(e, g, rtol=rtol).solution.mT, rtol=rtol).solution.mT / len(descent)
        for g, e, b in zip(descent, errors, inputs, strict=True)
    ]


def rank_one_direction(
    error: Tensor, activity: Tensor, inverse_error: Tensor, inverse_input: Tensor, depth: int
) -> tuple[Tensor, Tensor]:
    """Return vectors (a, b) with a bᵀ the update (10) of one layer for a single example.

    Given the inverses of the covariances this takes two matrix–vector products and a rank-one
    update, the cost of a gradient. [BLH18] §3.

    Args:
        error: eᵢ of the example, shape `(nᵢ,)`.
        activity: xᵢ₋₁ of the example, shape `(nᵢ₋₁,)`.
        inverse_error: Λ̃ᵢ⁻¹.
        inverse_input: Λᵢ⁻¹.
        depth: L.

    Example:
        >>> one = torch.ones(1)
        >>> rank_one_direction(one, 3 * one, torch.eye(1), torch.eye(1), depth=2)
        (tensor([0.5000]), tensor([3.]))
    """
    return inverse_error @ error / depth, inverse_input @ activity


def errors_through_inverses(params: Sequence[Tensor], error: Tensor) -> list[Tensor]:
    """Return ê_L = y − x_L and êᵢ = Wᵢ₊₁⁺ êᵢ₊₁, errors propagated through inverses. [BLH18] §6.

    Where the weights are invertible êᵢ = (W_L⋯Wᵢ₊₁)⁻¹ (y − x_L) = Λ̃ᵢ⁻¹ eᵢ, as in (16). So
    back-propagation through inverses instead of transposes gives the natural gradient.

    Args:
        params: W₁…W_L.
        error: y − x_L, shape `(n_L,)` or `(n_L, m)`.

    Example:
        >>> w = (torch.eye(2), 4 * torch.eye(2))
        >>> errors_through_inverses(w, torch.ones(2))[0]
        tensor([0.2500, 0.2500])
    """
    errors = [error]
    for w in reversed(params[1:]):
        errors.append(lstsq(w, errors[-1]).solution)
    return errors[::-1]


def input_root(x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return (S, Q): the second moment of rows x is Q S Sᵀ Qᵀ, S invertible, Q orthonormal.

    Q is None if the rows span everything.
    """
    _, s, vh = torch.linalg.svd(x / len(x) ** 0.5, full_matrices=False)
    rank = int((s > default_rtol(*x.shape, dtype=x.dtype) * s[0]).sum()) if len(s) else 0
    if rank == x.shape[1]:
        return vh.mT * s, None
    return torch.diag(s[:rank]), vh[:rank].mT
