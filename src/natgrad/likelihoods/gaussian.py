"""Squared error with any noise covariance."""

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from natgrad._checks import dense, integer
from natgrad._named import options
from natgrad.errors import NonFiniteError, ShapeError
from natgrad.likelihoods._root import Root
from natgrad.likelihoods.base import (
    Likelihood,
    Reduction,
    all_finite,
    flatten_outputs,
    like_outputs,
    like_torch,
    wide,
)
from natgrad.linalg import cholesky
from natgrad.linalg._cholesky import check_covariance

__all__ = ["Gaussian"]


@options
class Gaussian(Likelihood):
    """Real labels with noise covariance Σ̃, loss ½ (y − f)ᵀ Σ̃⁻¹ (y − f).

    [BLH18] (6), [KMH21] Lemma 2: gradient −Σ̃⁻¹(y − f), Fisher Σ̃⁻¹ for all data. The
    normalizing constant is dropped.

    Args:
        covariance: Σ̃, positive definite, shape `(k, k)` for k outputs. Default: the identity.
        reduction: `"mean"` (default) or `"sum"` over data; outputs always sum.

    Example:
        >>> likelihood = Gaussian(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))
        >>> likelihood(torch.zeros(1, 2), torch.tensor([[2.0, 3.0]]))
        tensor(5.)
    """

    constant_fisher = True
    squares = True

    def __init__(self, covariance: Tensor | None = None, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)
        if covariance is not None:
            check_covariance(covariance, "the noise covariance")
        self.covariance = covariance

    def __repr__(self) -> str:
        """Return the constructor call, with the size of the covariance."""
        noise = "" if self.covariance is None else f"covariance={tuple(self.covariance.shape)}, "
        return f"Gaussian({noise}reduction={self.reduction!r})"

    def precision_root(self, like: Tensor, k: int) -> Tensor | None:
        """Return R with RᵀR = Σ̃⁻¹ in the dtype and device of `like`; None is the identity."""
        if self.covariance is None:
            return None
        dense(like, "like")
        if self.covariance.shape[0] != integer(k, "k", low=1):
            raise ShapeError(
                f"the noise covariance is for {self.covariance.shape[0]} outputs, but the model "
                f"has {k}."
            )
        factor = cholesky(self.covariance.to(device=like.device), name="the noise covariance")
        identity = torch.eye(k, dtype=factor.dtype, device=factor.device)
        root: Tensor = torch.linalg.solve_triangular(factor, identity, upper=False)
        return root.to(like.dtype)

    def root(self, output: Tensor) -> Root:
        """Return Σ̃^{−1/2} as contrasts; all weights are one."""
        f = flatten_outputs(output)
        root = self.precision_root(f, f.shape[1])
        return Root(None if root is None else root[None], torch.zeros_like(f))

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw labels from N(output, Σ̃), in the outputs' shape."""
        noise = torch.randn(
            output.shape, dtype=output.dtype, device=output.device, generator=generator
        )
        if self.covariance is None:
            return output + noise
        flat = flatten_outputs(output)
        self.precision_root(flat, flat.shape[1])  # refuses another number of outputs
        factor = cholesky(self.covariance.to(device=output.device)).to(output.dtype)
        return output + (noise.reshape(len(output), -1) @ factor.mT).reshape(output.shape)

    def _sampled_errors(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        noise = torch.randn(
            output.shape, dtype=output.dtype, device=output.device, generator=generator
        )
        flat = flatten_outputs(noise)
        root = self.precision_root(flat, flat.shape[1])
        return noise if root is None else flat @ root

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        root = self.precision_root(f, f.shape[1])
        return u if root is None else u @ (root.mT @ root)

    def _mean_fisher(self, f: Tensor, weights: Tensor | None = None) -> Tensor:
        block = self._fisher(f)[0]
        return block if weights is None else weights.mean() * block

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        root = self.precision_root(f, f.shape[1])
        # Half of a square may fit in half precision even if the square does not.
        f_wide, y_wide = wide(f), wide(y)
        if root is None:  # one pass forward and one backward
            return like_torch(0.5 * mse_loss(f_wide, y_wide, reduction="none").sum(1), f)
        e = (y_wide - f_wide) @ wide(root).mT
        return like_torch(0.5 * (e * e).sum(1), f)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        root = self.precision_root(f, f.shape[1])
        return f - y if root is None else (f - y) @ (root.mT @ root)

    def _fisher(self, f: Tensor) -> Tensor:
        root = self.precision_root(f, f.shape[1])
        k = f.shape[1]
        block = torch.eye(k, dtype=f.dtype, device=f.device) if root is None else root.mT @ root
        return block.expand(len(f), k, k)

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        root = self.precision_root(f, f.shape[1])
        return y - f if root is None else (y - f) @ root.mT

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        labels = like_outputs(f, y)
        if not all_finite(labels):
            raise NonFiniteError(
                "regression targets must be finite, but some are NaN or infinite; drop or impute "
                "those data."
            )
        return labels
