"""Which inputs the Fisher is averaged over: the batch, a sample, a population, all entries."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from natgrad._checks import (
    dense,
    describe,
    instance,
    integer,
    nearest,
    require_finite,
    same_kind,
    tensor,
)
from natgrad._named import options
from natgrad.errors import InvalidInputError, ShapeError, UnsupportedError
from natgrad.likelihoods import Bernoulli, Likelihood, Root
from natgrad.linalg import cholesky
from natgrad.linalg._cholesky import check_covariance

__all__ = ["FisherOver", "GaussianInputs"]


@options
@dataclass(frozen=True, eq=False)
class GaussianInputs:
    """The population of inputs x ~ N(0, C), over which the Fisher has a closed form.

    For logits βᵀx, with γ = C^{1/2}β, r = ‖γ‖, P = γγᵀ/r² and z standard normal,
        F(β) = C^{1/2} (a (I − P) + c P) C^{1/2},  a = E φ′(rz),  c = E φ′(rz) z²,
    a one-dimensional integral each. With Gaussian noise F = C ⊗ Σ̃⁻¹.

    Attributes:
        covariance: C, positive definite `(d, d)`; None is the identity.

    Example:
        >>> GaussianInputs().moments(0.0)
        (0.25, 0.25)
    """

    covariance: Tensor | None = None

    def __post_init__(self) -> None:
        """Raise if the covariance is not positive definite."""
        if self.covariance is not None:
            check_covariance(self.covariance, "the covariance of inputs")

    def root(self, like: Tensor, d: int) -> Tensor:
        """Return T with TᵀT = C, in the dtype and device of `like`."""
        dense(like, "like")
        d = integer(d, "d", low=1)
        if self.covariance is None:
            return torch.eye(d, dtype=like.dtype, device=like.device)
        if self.covariance.shape[0] != d:
            raise ShapeError(
                f"the covariance is for {self.covariance.shape[0]} features, but inputs have {d}."
            )
        return cholesky(self.covariance.to(like.device)).mT.to(like.dtype)

    @staticmethod
    def moments(r: float) -> tuple[float, float]:
        """Return a = E φ′(rz) and c = E φ′(rz) z² for z standard normal: those of `Bernoulli`."""
        return Bernoulli().gaussian_moments(r)

    def representatives(self, likelihood: Likelihood, h: Tensor) -> tuple[Tensor, Root]:
        """Return d inputs and a root whose average Fisher is the population's.

        Args:
            likelihood: One with a constant Fisher, as `Gaussian`, or with `gaussian_moments` and
                one output, as `Bernoulli`.
            h: Linear hypothesis as features × outputs, shape `(d, k)`.

        Raises:
            UnsupportedError: If the likelihood has no closed form.
        """
        instance(likelihood, "likelihood", Likelihood)
        d, k = tensor(h, "h", shape=("d", "k")).shape
        t = self.root(h, d)
        if likelihood.constant_fisher:
            x = d**0.5 * t
            return x, likelihood.root(x @ h)
        gamma = (t @ h)[:, 0]
        r = float(torch.linalg.vector_norm(gamma))
        moments = likelihood.gaussian_moments(r) if k == 1 else None
        if moments is not None:
            a, c = moments
            unit = gamma / r if r else torch.zeros_like(gamma)
            stretch = c**0.5 - a**0.5
            x = d**0.5 * (a**0.5 * t + stretch * torch.outer(unit, unit @ t))
            return x, Root(None, torch.zeros_like(x[:, :1]))
        raise UnsupportedError(
            "the Fisher over Gaussian inputs has a closed form for Gaussian noise, or one logit "
            f"and Bernoulli; not for {likelihood!r} with {k} outputs. Pass a large sample of "
            "inputs as fisher_over instead."
        )

    def solve_identity(self, likelihood: Likelihood, beta: Tensor, d: Tensor) -> Tensor | None:
        """Return F(β)⁻¹ d in O(dim) if C = I and β is one vector of logits; else None."""
        instance(likelihood, "likelihood", Likelihood)
        tensor(d, "d", shape=tuple(tensor(beta, "beta").shape))
        same_kind(d, beta, "d", "beta")
        if self.covariance is not None or beta.ndim != 1:
            return None
        r = float(torch.linalg.vector_norm(beta))
        moments = likelihood.gaussian_moments(r)
        if moments is None:
            return None
        a, c = moments
        if r == 0:
            return d / a
        unit = beta / r
        along = unit @ d
        solution = (d - along * unit) / a + along / c * unit
        require_finite(solution, "the natural velocity")
        return solution


FisherOver = Tensor | GaussianInputs | Literal["batch", "all"] | None
"""Inputs the Fisher is averaged over; None is the parametrization's default."""


def check_fisher_over(value: object) -> None:
    """Raise unless the value is valid for `fisher_over`."""
    if value is None or isinstance(value, (Tensor, GaussianInputs)):
        return
    if isinstance(value, str) and value in ("batch", "all"):
        return
    hint = f" {nearest(value, ('batch', 'all'))}" if isinstance(value, str) else ""
    raise InvalidInputError(
        "fisher_over must be None, 'batch', 'all' (entries of a completed matrix), a tensor of "
        f"inputs, or GaussianInputs(), but is {describe(value)}.{hint}"
    )
