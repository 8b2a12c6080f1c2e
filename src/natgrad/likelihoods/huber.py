"""Regression that is robust to outliers."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import huber_loss

from natgrad._checks import ALL_FLOATS, integer, number, tensor
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

__all__ = ["Huber"]


@options
class Huber(Likelihood):
    """Real labels, loss ½e² for |e| ≤ δ and δ(|e| − ½δ) beyond, with e = y − f.

    The noise has density ∝ exp(−loss): a Gaussian inside ±δ with tails that fall like e^{−δ|e|}.
    Gradient −clip(e, ±δ). The Fisher is the expectation of its square; for a location this is
    the probability of |e| ≤ δ, for all outputs.

    Args:
        delta: δ.
        reduction: `"mean"` (default) or `"sum"` over data; several outputs always sum.

    Example:
        >>> Huber(1.0)(torch.zeros(2), torch.tensor([1.0, 3.0]))
        tensor(1.5000)
        >>> round(Huber(1.0).information, 4)
        0.5852
    """

    constant_fisher = True

    def __init__(self, delta: float = 1.0, *, reduction: Reduction = "mean") -> None:
        super().__init__(reduction=reduction)
        self.delta = number(delta, "delta", low=0, low_open=True)

    def __repr__(self) -> str:
        """Return the constructor call."""
        return f"Huber({self.delta!r}, reduction={self.reduction!r})"

    @property
    def information(self) -> float:
        """Return the Fisher of one output, the probability that a residual is within ±δ."""
        inside = math.sqrt(2 * math.pi) * math.erf(self.delta / math.sqrt(2))
        return inside / (inside + 2 * math.exp(-(self.delta**2) / 2) / self.delta)

    def precision_root(self, like: Tensor, k: int) -> Tensor:
        """Return √F on the diagonal."""
        tensor(like, "like", finite=False)
        k = integer(k, "k", low=1)
        eye = torch.eye(k, dtype=like.dtype, device=like.device)
        return math.sqrt(self.information) * eye

    def root(self, output: Tensor) -> Root:
        """Return √F as contrasts; all weights are one."""
        f = flatten_outputs(output)
        return Root(self.precision_root(f, f.shape[1])[None], torch.zeros_like(f))

    def support(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return nodes and weights of a quadrature; one output only.

        Gauss–Legendre inside ±δ, Gauss–Laguerre for each tail.
        """
        tensor(output, "output", shape=("k",), dtypes=ALL_FLOATS)
        if len(output) != 1:
            raise ShapeError(f"a quadrature needs one output, but got {len(output)}.")
        nodes, weights = np.polynomial.legendre.leggauss(60)
        middle, inside = self.delta * nodes, weights * self.delta
        inside = inside * np.exp(-(middle**2) / 2)
        tail, outside = np.polynomial.laguerre.laggauss(20)
        tail, outside = self.delta + tail / self.delta, outside / self.delta
        outside = outside * math.exp(-(self.delta**2) / 2)
        residuals = np.concatenate([middle, tail, -tail])
        density = np.concatenate([inside, outside, outside])
        labels = output + torch.from_numpy(residuals)[:, None].to(output)
        return labels, torch.from_numpy(density / density.sum()).to(output)

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw from the center, a Gaussian truncated at ±δ, or from an exponential tail."""
        uniform = torch.rand(
            (3, *output.shape), dtype=torch.float64, device=output.device, generator=generator
        )
        half = math.erf(self.delta / math.sqrt(2))
        middle = math.sqrt(2) * torch.erfinv((2 * uniform[0] - 1) * half)
        tail = self.delta - torch.log1p(-uniform[0]) / self.delta
        tail = torch.where(uniform[2] < 0.5, -tail, tail)
        noise = torch.where(uniform[1] < self.information, middle, tail)
        return output + noise.to(output.dtype)

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        return self.information * u

    def _mean_fisher(self, f: Tensor, weights: Tensor | None = None) -> Tensor:
        eye = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
        scale = 1.0 if weights is None else weights.mean(0)
        return self.information * scale * eye

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        losses = huber_loss(wide(f), wide(y), reduction="none", delta=self.delta)
        return like_torch(losses.sum(1), f)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return (f - y).clamp(-self.delta, self.delta)

    def _fisher(self, f: Tensor) -> Tensor:
        eye = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
        return (self.information * eye).expand(len(f), -1, -1)

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        return -self._gradient(f, y) / math.sqrt(self.information)

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        labels = like_outputs(f, y)
        if not all_finite(labels):
            raise NonFiniteError(
                "regression targets must be finite, but some are NaN or infinite; drop or impute "
                "those data."
            )
        return labels
