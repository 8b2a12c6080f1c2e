"""Test accuracy without a test set."""

import math

from torch import Tensor

from natgrad._named import named
from natgrad.diagnostics._angles import angle
from natgrad.diagnostics._inputs import check_same_length
from natgrad.errors import ShapeError
from natgrad.linalg import cholesky
from natgrad.linalg._cholesky import check_covariance


@named
def gaussian_accuracy(beta: Tensor, beta_true: Tensor, covariance: Tensor | None = None) -> Tensor:
    """Return P(sign x·β = sign x·β*) for x ~ N(0, C): 1 − ∠_C(β, β*)/π.

    The angle is that of the inner product ⟨a, b⟩ = aᵀCb. The result is exact and needs no test set.

    Args:
        beta: Separators, shape `(…, d)`.
        beta_true: The separator that defines the labels, shape `(d,)`.
        covariance: C, positive definite `(d, d)`; None is the identity.

    Returns:
        Tensor: Shape `(…)`; NaN where β or β* is zero.

    Example:
        >>> import torch
        >>> gaussian_accuracy(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 0.0]))
        tensor(0.7500)
    """
    beta, beta_true = check_same_length(beta, beta_true, ("beta", "beta_true"))
    if covariance is None:
        return 1 - angle(beta, beta_true) / math.pi
    check_covariance(covariance, "the covariance of inputs")
    if covariance.shape[0] != beta.shape[-1]:
        raise ShapeError(
            f"the covariance is for {covariance.shape[0]} features, but beta has {beta.shape[-1]}."
        )
    root = cholesky(covariance).to(beta)
    return 1 - angle(beta @ root, beta_true @ root) / math.pi
