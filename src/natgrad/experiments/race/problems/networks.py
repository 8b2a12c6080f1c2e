"""The networks of the race."""

import math
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import (
    GRU,
    AdaptiveAvgPool2d,
    BatchNorm2d,
    Conv2d,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    Module,
    ReLU,
    Sequential,
    Tanh,
)
from torch.nn import Unflatten as Reshape
from torch.nn.functional import gelu, relu


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


class Tied(Transformer):
    """A `Transformer` whose head is its table of characters.

    Example:
        >>> model = Tied(vocabulary=7, context=4)
        >>> model.head.weight is model.characters.weight
        True
    """

    def __init__(
        self, vocabulary: int, context: int, width: int = 96, heads: int = 4, depth: int = 2
    ) -> None:
        super().__init__(vocabulary, context, width, heads, depth)
        self.head = Linear(width, vocabulary, bias=False)
        self.head.weight = self.characters.weight


class Recurrent(Module):
    """A language model with a gated recurrent layer: predicts the next character.

    Example:
        >>> Recurrent(vocabulary=7)(torch.zeros(2, 4, dtype=torch.long)).shape
        torch.Size([8, 7])
    """

    def __init__(self, vocabulary: int, width: int = 224) -> None:
        super().__init__()
        self.characters = Embedding(vocabulary, 64)
        self.cells = GRU(64, width, batch_first=True)
        self.head = Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits, one row for each position of each text, `(n·t, vocabulary)`."""
        hidden: Tensor = self.cells(self.characters(tokens))[0]
        logits: Tensor = self.head(hidden)
        return logits.flatten(0, 1)


class Residual(Module):
    """Two convolutions with batch normalization, added to their input."""

    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.first = Conv2d(fan_in, fan_out, 3, stride=stride, padding=1, bias=False)
        self.second = Conv2d(fan_out, fan_out, 3, padding=1, bias=False)
        self.before, self.after = BatchNorm2d(fan_out), BatchNorm2d(fan_out)
        self.skip = Sequential()
        if stride > 1:
            self.skip = Sequential(Conv2d(fan_in, fan_out, 1, stride=stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        """Return `(n, fan_out, …)`."""
        hidden = relu(self.before(self.first(x)))
        out: Tensor = relu(self.after(self.second(hidden)) + self.skip(x))
        return out


class ResNet(Module):
    """A residual network with batch normalization on pictures of 28×28 pixels, given as rows.

    Example:
        >>> ResNet()(torch.zeros(2, 784)).shape
        torch.Size([2, 10])
    """

    def __init__(self) -> None:
        super().__init__()
        self.body = Sequential(
            Reshape(1, (1, 28, 28)),
            Conv2d(1, 16, 3, stride=2, padding=1, bias=False),
            BatchNorm2d(16),
            ReLU(),
            Residual(16, 16, 1),
            Residual(16, 32, 2),
            Residual(32, 128, 2),
            AdaptiveAvgPool2d(1),
            Flatten(),
        )
        self.head = Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape `(n, 10)`."""
        logits: Tensor = self.head(self.body(x))
        return logits


class Sine(Module):
    """sin(ω x)."""

    def __init__(self, frequency: float) -> None:
        super().__init__()
        self.frequency = frequency

    def forward(self, x: Tensor) -> Tensor:
        """Return the sine of every entry."""
        return torch.sin(self.frequency * x)


def siren(fan_in: int, width: int, depth: int, frequency: float = 30.0) -> Sequential:
    """Return a network with sines between its layers (Sitzmann et al. 2020).

    Example:
        >>> siren(2, 8, 2)(torch.zeros(3, 2)).shape
        torch.Size([3, 1])
    """
    layers: list[Module] = []
    for k in range(depth):
        layer = Linear(fan_in if k == 0 else width, width)
        bound = 1 / fan_in if k == 0 else math.sqrt(6 / width) / frequency
        torch.nn.init.uniform_(layer.weight, -bound, bound)
        layers += [layer, Sine(frequency)]
    return Sequential(*layers, Linear(width, 1))


class Variational(Module):
    """A variational autoencoder on pictures of 28×28 pixels, given as rows.

    In evaluation mode the noise of its codes is always the same.

    Example:
        >>> [tuple(t.shape) for t in Variational()(torch.zeros(2, 784))]
        [(2, 784), (2, 32), (2, 32)]
    """

    def __init__(self, width: int = 400, codes: int = 32) -> None:
        super().__init__()
        self.encoder = Sequential(Linear(784, width), Tanh(), Linear(width, 2 * codes))
        self.decoder = Sequential(Linear(codes, width), Tanh(), Linear(width, 784))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return logits of the pixels, and mean and log-variance of the codes."""
        mean, log_variance = self.encoder(x).chunk(2, 1)
        source = None if self.training else torch.Generator(x.device).manual_seed(0)
        noise = torch.randn(mean.shape, generator=source, device=x.device, dtype=x.dtype)
        return self.decoder(mean + torch.exp(log_variance / 2) * noise), mean, log_variance
