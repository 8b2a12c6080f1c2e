"""The problems of the race: data in three parts, a network, and a score to lower."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.functional import cross_entropy, mse_loss

from natgrad.data import mnist
from natgrad.errors import InvalidInputError
from natgrad.experiments._data import fashion, shipped, text
from natgrad.experiments.race import _networks as networks

AUTOENCODER = (784, 400, 200, 100, 50, 100, 200, 400, 784)
_CONTEXT = 64  # characters that the transformer sees
_ROWS = 1000  # samples per forward pass of an evaluation

Kind = Literal["squared", "categories"]


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
            and score the cross-entropy in nats.
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

    def loss(self, output: Tensor, y: Tensor) -> Tensor:
        """Return the loss of a batch, averaged over its samples."""
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
            if self.kind == "squared":
                total += float(mse_loss(output, y, reduction="sum"))
                outputs += output.numel()
            else:
                total += float(cross_entropy(output, y, reduction="sum"))
                wrong += float((output.argmax(1) != y).sum())
                outputs += len(output)
        model.train()
        return total / outputs, wrong / outputs if self.kind == "categories" else float("nan")


def _autoencoder() -> Problem:
    digits = mnist.load()
    x, held = digits.train_images[:-2000], digits.train_images[-2000:]
    return Problem(
        "squared",
        lambda: networks.perceptron(*AUTOENCODER),
        Part(x, x),
        Part(held, held),
        Part(digits.test_images, digits.test_images),
        (50, 250, 500, 1000),
    )


def _classifier() -> Problem:
    clothes = fashion.load()
    x, y = clothes.train_images, clothes.train_labels
    return Problem(
        "categories",
        networks.Convolutions,
        Part(x[:-2000], y[:-2000]),
        Part(x[-2000:], y[-2000:]),
        Part(clothes.test_images, clothes.test_labels),
        (50, 125, 250, 500),
    )


def _transformer() -> Problem:
    found = text.documentation()
    size = len(found.tokens)
    parts = found.tokens.tensor_split([int(0.925 * size), int(0.95 * size)])
    strides = (_CONTEXT // 4, _CONTEXT, _CONTEXT)
    train, validation, test = (
        Part(*text.windows(tokens, _CONTEXT, stride))
        for tokens, stride in zip(parts, strides, strict=True)
    )
    vocabulary = len(found.characters)
    return Problem(
        "categories",
        lambda: networks.Transformer(vocabulary, _CONTEXT),
        train,
        validation,
        test,
        (8, 16, 32, 64),
    )


def _table() -> Problem:
    x, y = shipped.diabetes()
    train, validation, test = _shuffled(len(x)).tensor_split([264, 353])
    return Problem(
        "squared",
        lambda: networks.perceptron(10, 32, 32, 1),
        Part(x[train], y[train]),
        Part(x[validation], y[validation]),
        Part(x[test], y[test]),
        (16, 32, 64, 264),
    )


def _digits() -> Problem:
    x, _ = shipped.digits()
    train, validation, test = (x[rows] for rows in _shuffled(len(x)).tensor_split([1200, 1500]))
    return Problem(
        "squared",
        lambda: networks.perceptron(64, 32, 10, 32, 64),
        Part(train, train),
        Part(validation, validation),
        Part(test, test),
        (20, 50, 100, 400),
    )


def _text(network: Callable[[int], Module]) -> Problem:
    base = _transformer()
    vocabulary = len(text.documentation().characters)
    return replace(base, network=lambda: network(vocabulary))


def _residual() -> Problem:
    return replace(_classifier(), network=networks.ResNet)


def _picture() -> Problem:
    """Brightness at points of a sheet of 8×8 pictures, a quarter of the points held out."""
    clothes = fashion.load()
    sheet = clothes.train_images[:64].reshape(8, 8, 28, 28).transpose(1, 2).reshape(224, 224)
    places = torch.linspace(-1, 1, 224)
    x = torch.cartesian_prod(places, places)
    y = (2 * sheet - 1).reshape(-1, 1)
    train, validation, test = _shuffled(len(x)).tensor_split([37632, 43904])
    return Problem(
        "squared",
        lambda: networks.siren(2, 264, 4),
        Part(x[train], y[train]),
        Part(x[validation], y[validation]),
        Part(x[test], y[test]),
        (250, 500, 1000, 2000),
    )


def _noisy() -> Problem:
    """Friedman's first function with noise, and a twentieth of the labels far off."""
    source = torch.Generator().manual_seed(0)
    x = torch.rand(1600, 10, generator=source)
    y = 10 * torch.sin(torch.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2
    y = (y + 10 * x[:, 3] + 5 * x[:, 4])[:, None]
    y = (y - y.mean()) / y.std()
    noise = 0.2 * torch.randn(y.shape, generator=source)
    far = torch.rand(y.shape, generator=source) < 0.05
    y[:800] += noise[:800] + 3 * far[:800] * torch.randn(800, 1, generator=source)
    x = 2 * x - 1
    return Problem(
        "squared",
        lambda: networks.perceptron(10, 128, 128, 1),
        Part(x[:800], y[:800]),
        Part(x[800:1200], y[800:1200]),
        Part(x[1200:], y[1200:]),
        (16, 32, 64, 200),
    )


def _shuffled(n: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))


_PROBLEMS: dict[str, Callable[[], Problem]] = {
    "autoencoder": _autoencoder,
    "classifier": _classifier,
    "transformer": _transformer,
    "table": _table,
    "digits": _digits,
    "residual": _residual,
    "tied": lambda: _text(lambda v: networks.Tied(v, _CONTEXT)),
    "recurrent": lambda: _text(networks.Recurrent),
    "picture": _picture,
    "noisy": _noisy,
}
ABOUT = {
    "autoencoder": "MNIST autoencoder 784-400-200-100-50-100-200-400-784, tanh; MSE per pixel",
    "classifier": "convolutional classifier on Fashion-MNIST; cross-entropy",
    "transformer": "two-layer transformer on the text of Python's help(); nats per character",
    "table": "perceptron 10-32-32-1 on scikit-learn's diabetes table; MSE of the standardized "
    "outcome",
    "digits": "autoencoder 64-32-10-32-64 on scikit-learn's digits; MSE per pixel",
    "residual": "residual network with batch normalization on Fashion-MNIST; cross-entropy",
    "tied": "transformer with tied embeddings on the text of Python's help(); nats per character",
    "recurrent": "GRU on the text of Python's help(); nats per character",
    "picture": "SIREN 2-264-264-264-264-1 on a sheet of 64 pictures; MSE per point",
    "noisy": "perceptron 10-128-128-1 on Friedman's function with outliers; MSE without noise",
}
"""What each problem is."""


@lru_cache(maxsize=1)
def load(name: str) -> Problem:
    """Return a problem with its data.

    Raises:
        InvalidInputError: If there is no such problem, or its data are not available.

    Example:
        >>> problem = load("table")
        >>> len(problem.train), len(problem.validation), len(problem.test)
        (264, 89, 89)
    """
    if name not in _PROBLEMS:
        raise InvalidInputError(f"problems are {', '.join(_PROBLEMS)}, not {name!r}.")
    return _PROBLEMS[name]()
