"""The loss of boosting."""

import torch
from torch import Tensor

from natgrad.errors import LabelError, VelocityOverflowError
from natgrad.likelihoods import Likelihood, Root
from natgrad.likelihoods.base import flatten_outputs, like_outputs


class Exponential(Likelihood):
    """Labels y ∈ {−1, +1}, loss e^{−ys}.

    It is not a log-likelihood, but it is proper: s minimizes the expected loss of labels with
    probabilities φ(2ys). Their score vectors −y e^{−ys} have mean zero and variance one, which is
    the Fisher here, whatever the outputs.

    Example:
        >>> Exponential()(torch.zeros(2), torch.ones(2))
        tensor(1.)
    """

    constant_fisher = True
    attained = False

    def precision_root(self, like: Tensor, k: int) -> None:
        return None

    def root(self, output: Tensor) -> Root:
        return Root(None, torch.zeros_like(flatten_outputs(output)))

    def support(self, output: Tensor) -> tuple[Tensor, Tensor]:
        k = len(output)
        y = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * k).reshape(-1, k).to(output)
        return y, torch.sigmoid(2 * y * output).prod(1)

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        return 2 * torch.bernoulli(torch.sigmoid(2 * output), generator=generator) - 1

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return torch.exp(-y * f).sum(1)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return -y * torch.exp(-y * f)

    def _fisher(self, f: Tensor) -> Tensor:
        return torch.eye(f.shape[1], dtype=f.dtype, device=f.device).expand(len(f), -1, -1)

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        velocity = -self._gradient(f, y)
        if not bool(torch.isfinite(velocity).all()):
            raise VelocityOverflowError(f"the natural velocity y e^{{−ys}} overflows {f.dtype}.")
        return velocity

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        labels = like_outputs(f, y)
        if not bool((labels.abs() == 1).all()):
            raise LabelError("labels must be −1 or +1.")
        return labels

    # What the table of cases takes.

    @staticmethod
    def build(reduction: str, k: int) -> "Exponential":
        return Exponential(reduction=reduction)  # type: ignore[arg-type]

    @staticmethod
    def labels(f: Tensor, seed: int) -> Tensor:
        draw = torch.Generator().manual_seed(seed)
        return torch.sign(torch.randn(f.shape, dtype=f.dtype, generator=draw))
