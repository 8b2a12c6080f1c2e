"""Problems on tables, one of them made up, with noise."""

import torch
from torch import Tensor

from natgrad.experiments._data import shipped
from natgrad.experiments.race.problems import networks
from natgrad.experiments.race.problems.problem import Part, Problem


def table() -> Problem:
    """The diabetes table, standardized."""
    x, y = shipped.diabetes()
    train, validation, test = shuffled(len(x)).tensor_split([264, 353])
    return Problem(
        "squared",
        lambda: networks.perceptron(10, 32, 32, 1),
        Part(x[train], y[train]),
        Part(x[validation], y[validation]),
        Part(x[test], y[test]),
        (16, 32, 64, 264),
    )


def noisy() -> Problem:
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


def shuffled(n: int) -> Tensor:
    """Return the numbers below n in an order that is always the same."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0))
