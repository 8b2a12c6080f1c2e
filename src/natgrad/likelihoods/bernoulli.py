"""Logistic loss with labels ±1."""

from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import softplus

from natgrad._checks import ALL_FLOATS, number, tensor
from natgrad._named import options
from natgrad.errors import DtypeError, LabelError, VelocityOverflowError
from natgrad.likelihoods._root import Root
from natgrad.likelihoods.base import (
    Likelihood,
    Reduction,
    flatten_outputs,
    like_outputs,
    like_torch,
    wide,
)

__all__ = ["Bernoulli"]


@options
class Bernoulli(Likelihood):
    """Labels y ∈ {−1, +1}, logit s, loss log(1 + e^{−ys}).

    [KMH21] Lemma 1: gradient −y φ(−ys), Fisher φ(s) φ(−s), φ the logistic function. The natural
    velocity of a logit is y/φ(ys) = y (1 + e^{−ys}), the right-hand side of Theorem 4's proof.

    The published factor e^{−u_max} of (24)–(25), with u = ys, overflows; a factor e^{−u_min} does
    not, but then weights underflow past a spread of 1400. Here the weight √(φ(s)φ(−s)) is kept as
    its logarithm −|u|/2 − log(1 + e^{−|u|}), and the solver decides how to use it.

    Args:
        reduction: `"mean"` (default) or `"sum"` over data; several outputs always sum.
        zero_one: Accept labels 0 and 1 instead of −1 and +1.

    Example:
        >>> likelihood = Bernoulli()
        >>> s, y = torch.tensor([0.0, 2000.0]), torch.tensor([1.0, 1.0])
        >>> likelihood(s, y)
        tensor(0.3466)
        >>> likelihood.whitened(s, y).target[:, 0]
        tensor([2., 1.])
    """

    attained = False

    def __init__(self, *, reduction: Reduction = "mean", zero_one: bool = False) -> None:
        super().__init__(reduction=reduction)
        if not isinstance(zero_one, bool):
            raise DtypeError(f"zero_one must be True or False, but is {zero_one!r}.")
        self.zero_one = zero_one

    def __repr__(self) -> str:
        """Return the constructor call."""
        option = ", zero_one=True" if self.zero_one else ""
        return f"Bernoulli(reduction={self.reduction!r}{option})"

    def root(self, output: Tensor) -> Root:
        """Return weights √(φ(s)φ(−s)) as logarithms; contrasts are the logits themselves."""
        magnitude = flatten_outputs(output).abs()
        return Root(None, -magnitude / 2 - torch.log1p(torch.exp(-magnitude)))

    def gaussian_moments(self, r: float) -> tuple[float, float]:
        """Return E φ′(rz) and E φ′(rz) z² for z standard normal.

        Gauss–Legendre in s = rz on [0, min(40, 9r)]: φ′ is below 1e-17 past the first bound and
        the normal density past the second.

        Example:
            >>> Bernoulli().gaussian_moments(0.0)
            (0.25, 0.25)
        """
        r = number(r, "r", low=0)
        if r == 0:
            return 0.25, 0.25
        nodes, weights = _legendre()
        top = min(40.0, 9.0 * r)
        s = 0.5 * top * (nodes + 1)
        z = s / r
        derivative = np.exp(-s) / (1 + np.exp(-s)) ** 2
        density = derivative * np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
        weight = weights * top / r  # both signs of z: 2 × the half-width top / 2r
        return float(weight @ density), float(weight @ (density * z**2))

    def support(self, output: Tensor) -> tuple[Tensor, Tensor]:
        """Return all combinations of labels, and their probabilities φ(ys).

        Example:
            >>> Bernoulli().support(torch.zeros(1))
            (tensor([[-1.],
                    [ 1.]]), tensor([0.5000, 0.5000]))
        """
        tensor(output, "output", shape=("k",), dtypes=ALL_FLOATS)
        k, low = len(output), 0.0 if self.zero_one else -1.0
        labels = torch.cartesian_prod(*[torch.tensor([low, 1.0])] * k).reshape(-1, k).to(output)
        return labels, torch.exp(-self.losses(output.expand(len(labels), k), labels))

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        """Draw labels, in the outputs' shape: ±1, or 0 and 1 with `zero_one`."""
        ones = torch.bernoulli(torch.sigmoid(output), generator=generator)
        return ones if self.zero_one else 2 * ones - 1

    def _fisher_product(self, f: Tensor, u: Tensor) -> Tensor:
        return torch.sigmoid(f) * torch.sigmoid(-f) * u

    def _mean_fisher(self, f: Tensor, weights: Tensor | None = None) -> Tensor:
        variance = torch.sigmoid(f) * torch.sigmoid(-f)
        return torch.diag((variance if weights is None else weights * variance).mean(0))

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        # Above its threshold of 20 torch returns x for softplus(x), which omits e⁻²⁰.
        return like_torch(softplus(wide(-y * f), threshold=50).sum(1), f)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return -y * torch.sigmoid(-y * f)

    def _fisher(self, f: Tensor) -> Tensor:
        return torch.diag_embed(torch.sigmoid(f) * torch.sigmoid(-f))

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        return y * (1 + torch.exp(-y * f))

    def _overflow(self, f: Tensor, y: Tensor) -> VelocityOverflowError:
        return VelocityOverflowError(
            f"the natural velocity y(1 + e^{{−ys}}) overflows {f.dtype}: the smallest margin is "
            f"{float((y * f).min()):.4g}. Start closer to the data, use a wider dtype, or take a "
            "Euclidean direction until margins grow."
        )

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        labels = like_outputs(f, y)
        low, name = (0, "0 or 1") if self.zero_one else (-1, "−1 or +1")
        # y² = y only for 0 and 1, y = 1/y only for −1 and 1: two passes, and no constant.
        if not torch.equal(labels, labels * labels if self.zero_one else labels.reciprocal()):
            wrong = labels[(labels != low) & (labels != 1)][0].item()
            hint = _hint(wrong, zero_one=self.zero_one)
            raise LabelError(f"Bernoulli labels must be {name}, but one is {wrong:g}. {hint}")
        return 2 * labels - 1 if self.zero_one else labels


def _hint(wrong: float, *, zero_one: bool) -> str:
    """Return a hint for a label that is not allowed."""
    other = -1 if zero_one else 0
    if wrong == other:
        name = "Bernoulli() for −1/+1" if zero_one else "Bernoulli(zero_one=True) for 0/1"
        return f"Use {name} labels."
    if 0 < wrong < 1:
        return "Probabilities as labels: train with NGD(model, torch.nn.BCEWithLogitsLoss())."
    return "Look for missing values or a wrong column."


@cache
def _legendre() -> tuple[np.ndarray, np.ndarray]:
    nodes, weights = np.polynomial.legendre.leggauss(200)
    return nodes, weights
