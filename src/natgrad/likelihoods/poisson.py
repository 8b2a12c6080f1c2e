"""Counts."""

import math

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, number, tensor
from natgrad._named import options
from natgrad.errors import LabelError, ShapeError, VelocityOverflowError
from natgrad.likelihoods._root import Root
from natgrad.likelihoods.base import Likelihood, flatten_outputs, like_outputs, like_torch, wide

__all__ = ["Poisson"]


@options
class Poisson(Likelihood):
    """Counts y ∈ {0, 1, …} with log-rate f, loss e^f − y f.

    Gradient e^f − y, Fisher e^f, natural velocity y e^{−f} − 1. The constant log y! is dropped.

    Args:
        reduction: `"mean"` (default) or `"sum"` over data; several outputs always sum.

    Example:
        >>> Poisson()(torch.zeros(1), torch.ones(1))
        tensor(1.)
    """

    attained = False  # for a count of zero the best rate is zero

    def root(self, output: Tensor) -> Root:
        """Return weights e^{f/2} as logarithms; contrasts are the outputs themselves."""
        return Root(None, flatten_outputs(output) / 2)

    def gaussian_moments(self, r: float) -> tuple[float, float]:
        """Return E e^{rz} and E e^{rz} z² for z standard normal.

        Example:
            >>> Poisson().gaussian_moments(0.0)
            (1.0, 1.0)
        """
        r = number(r, "r", low=0, high=30)
        average = math.exp(r**2 / 2)
        return average, (1 + r**2) * average

    def support(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return counts until the tail is below rounding; one output only.

        Example:
            >>> counts, probabilities = Poisson().support(torch.zeros(1))
            >>> counts[:2, 0], round(float(probabilities.sum()), 4)
            (tensor([0., 1.]), 1.0)
        """
        tensor(output, "output", shape=("k",), dtypes=ALL_FLOATS)
        if len(output) != 1 or float(output) > 15:
            raise ShapeError("the counts of one output with a log-rate up to 15 can be listed.")
        rate = float(output.exp())
        y = torch.arange(20 + int(rate + 12 * rate**0.5)).to(output)[:, None]
        return y, torch.exp(y * output - rate - torch.lgamma(y + 1))[:, 0]

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.poisson(wide(output).exp(), generator=generator).to(output.dtype)

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        return f.exp() * u

    def _mean_fisher(self, f: Tensor, weights: Tensor | None = None) -> Tensor:
        rates = f.exp() if weights is None else weights * f.exp()
        return torch.diag(rates.mean(0))

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        wide_f, wide_y = wide(f), wide(y)
        return like_torch((wide_f.exp() - wide_y * wide_f).sum(1), f)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return f.exp() - y

    def _fisher(self, f: Tensor) -> Tensor:
        return torch.diag_embed(f.exp())

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        return y * torch.exp(-f) - 1

    def _overflow(self, f: Tensor, y: Tensor) -> VelocityOverflowError:
        return VelocityOverflowError(
            f"the natural velocity y e^{{−f}} − 1 overflows {f.dtype}: the smallest log-rate is "
            f"{float(f.min()):.4g}. Start closer to the data, or use a wider dtype."
        )

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        labels = like_outputs(f, y)
        whole = (labels >= 0) & (labels == labels.round()) & labels.isfinite()
        if not bool(whole.all()):
            wrong = labels[~whole][0].item()
            raise LabelError(f"counts must be whole numbers of at least 0, but one is {wrong:g}.")
        return labels
