"""Deep linear regression problems of [BLH18] §5, and the weights that all methods start from."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import Linear, Sequential

from natgrad.data.teachers import teach

_VALIDATION = 1_000


@dataclass(frozen=True)
class Problem:
    """One random problem.

    Attributes:
        widths: n₀ … n_L.
        power: ‖W‖_F² of the whole map, for the teacher and at the start.
        examples: Number of training pairs.
        tests: Number of test pairs.
        noise: Variance of the noise on each output.
        seed: Seed of teacher, data and start.
    """

    widths: tuple[int, ...]
    power: float
    examples: int
    tests: int
    noise: float
    seed: int


@dataclass(frozen=True)
class Task:
    """Data in single precision, as pairs of inputs and targets, and initial weights."""

    train: tuple[Tensor, Tensor]
    validation: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    start: tuple[Tensor, ...]


def powered_factors(
    widths: Sequence[int], power: float, generator: torch.Generator
) -> tuple[Tensor, ...]:
    """Return Gaussian W₁ … W_L of variance 1/max(in, out), rescaled so that ‖W‖_F² = power.

    Example:
        >>> factors = powered_factors((4, 3, 4), 2.0, torch.Generator().manual_seed(0))
        >>> round(float((factors[1] @ factors[0]).square().sum()), 12)
        2.0
    """
    factors = [
        torch.randn(out, into, dtype=torch.float64, generator=generator) / math.sqrt(max(into, out))
        for into, out in pairwise(widths)
    ]
    scale = (power / float(whole(factors).square().sum())) ** (0.5 / len(factors))
    return tuple(scale * factor for factor in factors)


def whole(factors: Sequence[Tensor]) -> Tensor:
    """Return W = W_L ⋯ W₁."""
    product = factors[0]
    for factor in factors[1:]:
        product = factor @ product
    return product


def make(problem: Problem) -> Task:
    """Return the data and the start of a problem."""
    generator = torch.Generator().manual_seed(problem.seed)
    teacher = powered_factors(problem.widths, problem.power, generator)
    data = teach(
        teacher,
        generator,
        examples=problem.examples,
        tests=problem.tests + _VALIDATION,
        noise=problem.noise,
    )
    start = powered_factors(problem.widths, problem.power, generator)
    x, y = data.test_inputs.float(), data.test_targets.float()
    return Task(
        train=(data.train_inputs.float(), data.train_targets.float()),
        validation=(x[problem.tests :], y[problem.tests :]),
        test=(x[: problem.tests], y[: problem.tests]),
        start=tuple(factor.float() for factor in start),
    )


def linear_network(start: Sequence[Tensor]) -> Sequential:
    """Return linear layers without biases, with these weights."""
    layers = []
    for weight in start:
        layer = Linear(weight.shape[1], weight.shape[0], bias=False, dtype=weight.dtype)
        layer.weight.data.copy_(weight)
        layers.append(layer)
    return Sequential(*layers)


def shares(widths: Sequence[int]) -> int:
    """Return how many layers contribute to the slowest mode of the layerwise natural gradient.

    Each moves the whole map by 1/L of the way. Without a bottleneck all layers contribute. With it,
    only layers before the first loss of width can turn the row space of the map, and only layers
    after the last one its column space. The smaller of these two numbers counts.

    Example:
        >>> shares((20, 30, 20)), shares((5, 5, 2, 5)), shares((5, 5, 2, 5, 5))
        (2, 1, 2)
    """
    depth = len(widths) - 1
    first, last = widths[0], widths[-1]
    if min(widths) >= min(first, last):
        return depth
    before = sum(min(widths[: i + 1]) >= first for i in range(depth))
    after = sum(min(widths[i + 1 :]) >= last for i in range(depth))
    return min(before, after)
