"""The networks of the race."""

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import Conv2d, Embedding, Flatten, LayerNorm, Linear, Module, ReLU, Sequential, Tanh
from torch.nn import Unflatten as Reshape
from torch.nn.functional import gelu


def perceptron(*widths: int) -> Sequential:
    """Return linear layers of these widths, tanh between them.

    Example:
        >>> perceptron(10, 3, 1)(torch.zeros(2, 10)).shape
        torch.Size([2, 1])
    """
    layers: list[Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [Linear(fan_in, fan_out), Tanh()]
    return Sequential(*layers[:-1])


class Convolutions(Module):
    """Two strided convolutions and a hidden layer on pictures of 28×28 pixels, given as rows.

    Example:
        >>> Convolutions()(torch.zeros(2, 784)).shape
        torch.Size([2, 10])
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = Sequential(
            Reshape(1, (1, 28, 28)),
            Conv2d(1, 16, 5, stride=2, padding=2),
            ReLU(),
            Conv2d(16, 32, 3, stride=2, padding=1),
            ReLU(),
            Flatten(),
            Linear(32 * 7 * 7, 128),
            ReLU(),
        )
        self.head = Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape `(n, 10)`."""
        logits: Tensor = self.head(self.body(x))
        return logits


class Attention(Module):
    """Causal self-attention from linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inward, self.outward = Linear(width, 3 * width), Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return a mixture of each position and those before it, `(n, t, width)`."""
        n, t, width = x.shape
        parts = self.inward(x).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / math.sqrt(q.shape[-1])
        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        weights = scores.masked_fill(later, -math.inf).softmax(-1)
        mixed: Tensor = self.outward((weights @ v).transpose(1, 2).reshape(n, t, width))
        return mixed


class Block(Module):
    """Attention and a hidden layer, each on normalized inputs and added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = LayerNorm(width), LayerNorm(width)
        self.attention = Attention(width, heads)
        self.inner, self.outer = Linear(width, 4 * width), Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return `(n, t, width)`."""
        x = x + self.attention(self.before(x))
        out: Tensor = x + self.outer(gelu(self.inner(self.between(x))))
        return out


class Transformer(Module):
    """A language model: predicts the next character at every position.

    Example:
        >>> Transformer(vocabulary=7, context=4)(torch.zeros(2, 4, dtype=torch.long)).shape
        torch.Size([8, 7])
    """

    def __init__(
        self, vocabulary: int, context: int, width: int = 64, heads: int = 4, depth: int = 2
    ) -> None:
        super().__init__()
        self.characters = Embedding(vocabulary, width)
        self.positions = Embedding(context, width)
        self.body = Sequential(*(Block(width, heads) for _ in range(depth)), LayerNorm(width))
        self.head = Linear(width, vocabulary)
        for table in (self.characters, self.positions):
            torch.nn.init.normal_(table.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits, one row for each position of each text, `(n·t, vocabulary)`."""
        place = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        x = self.body(self.characters(tokens) + self.positions(place))
        logits: Tensor = self.head(x)
        return logits.flatten(0, 1)
