"""A learning problem: data in three parts, a network, a loss, and a score to lower."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

_ROWS = 1000  # samples per forward pass of an evaluation

Kind = Literal["squared", "categories", "variational"]


def bound(logits: Tensor, mean: Tensor, log_variance: Tensor, x: Tensor) -> Tensor:
    """Return the negative evidence bound of a variational autoencoder, in nats per sample.

    Example:
        >>> zeros = torch.zeros(3, 2)
        >>> bound(torch.zeros(3, 1), zeros, zeros, torch.ones(3, 1))  # log 2, and no divergence
        tensor(0.6931)
    """
    fit = binary_cross_entropy_with_logits(logits, x, reduction="sum")
    divergence = 0.5 * (mean.square() + log_variance.exp() - 1 - log_variance).sum()
    return (fit + divergence) / len(x)


@dataclass(frozen=True, eq=False)
class Part:
    """Inputs and labels."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True, eq=False)
class Problem:
    """A learning problem.

    Attributes:
        kind: "squared": loss ½|e|², score the mean squared error of an output. "categories": loss
            and score the cross-entropy in nats. "variational": loss and score the negative evidence
            bound in nats per sample; the network returns logits, mean and log-variance.
        network: Makes the network; its weights come from torch's global generator.
        train: Samples to learn from.
        validation: Samples used to choose settings and to draw the curves.
        test: Samples that are used once, after training.
        batches: Four batch sizes from small to large, in rows of `train`.
    """

    kind: Kind
    network: Callable[[], Module]
    train: Part
    validation: Part
    test: Part
    batches: tuple[int, int, int, int]

    def make(self, seed: int) -> Module:
        """Return the network with the initial weights of a seed."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.network()

    def loss(self, output: Any, y: Tensor) -> Tensor:
        """Return the loss of a batch, averaged over its samples."""
        if self.kind == "variational":
            logits, mean, log_variance = output
            return bound(logits, mean, log_variance, y)
        if self.kind == "squared":
            return 0.5 * mse_loss(output, y, reduction="sum") / len(output)
        return cross_entropy(output, y)

    def batch(self, part: Part, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels, a row of labels for each row of the output."""
        y = part.y[rows]
        return part.x[rows], y.flatten() if self.kind == "categories" else y

    @torch.no_grad()
    def score(self, model: Module, part: Part) -> tuple[float, float]:
        """Return the score on a part, and the share of wrong labels (NaN where there are none)."""
        total = wrong = outputs = 0.0
        model.eval()
        for rows in torch.split(torch.arange(len(part)), _ROWS):
            x, y = self.batch(part, rows)
            output = model(x)
            if self.kind == "variational":
                total += float(self.loss(output, y)) * len(y)
                outputs += len(y)
            elif self.kind == "squared":
                total += float(mse_loss(output, y, reduction="sum"))
                outputs += output.numel()
            else:
                total += float(cross_entropy(output, y, reduction="sum"))
                wrong += float((output.argmax(1) != y).sum())
                outputs += len(output)
        model.train()
        return total / outputs, wrong / outputs if self.kind == "categories" else float("nan")
