"""Counts."""

import math

import torch
from torch import Tensor

from natgrad.errors import LabelError, VelocityOverflowError
from natgrad.likelihoods import Likelihood, Root
from natgrad.likelihoods.base import flatten_outputs, like_outputs


class Poisson(Likelihood):
    """Counts y ∈ {0, 1, …} with log-rate f, loss e^f − y f.

    Gradient e^f − y, Fisher e^f, natural velocity y e^{−f} − 1. The constant log y! is dropped.

    Example:
        >>> Poisson()(torch.zeros(1), torch.ones(1))
        tensor(1.)
    """

    def root(self, output: Tensor) -> Root:
        return Root(None, flatten_outputs(output) / 2)

    def gaussian_moments(self, r: float) -> tuple[float, float]:
        average = math.exp(r**2 / 2)
        return average, (1 + r**2) * average

    def support(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return counts up to where the tail is below rounding; one output only."""
        rate = float(output.exp())
        y = torch.arange(20 + int(rate + 12 * rate**0.5)).to(output)[:, None]
        return y, torch.exp(y * output - rate - torch.lgamma(y + 1))[:, 0]

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.poisson(output.exp(), generator=generator)

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return (f.exp() - y * f).sum(1)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return f.exp() - y

    def _fisher(self, f: Tensor) -> Tensor:
        return torch.diag_embed(f.exp())

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        velocity = y * torch.exp(-f) - 1
        if not bool(torch.isfinite(velocity).all()):
            raise VelocityOverflowError(f"the natural velocity y e^{{−f}} − 1 overflows {f.dtype}.")
        return velocity

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        labels = like_outputs(f, y)
        if not bool(((labels >= 0) & (labels == labels.round())).all()):
            raise LabelError("counts must be whole numbers of at least 0.")
        return labels

    # What the table of cases takes.

    @staticmethod
    def build(reduction: str, k: int) -> "Poisson":
        return Poisson(reduction=reduction)  # type: ignore[arg-type]

    @staticmethod
    def labels(f: Tensor, seed: int) -> Tensor:
        draw = torch.Generator().manual_seed(seed)
        return torch.randint(0, 4, f.shape, generator=draw).to(f)
