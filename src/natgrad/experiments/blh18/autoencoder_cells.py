"""Cells of Figure 1D: an autoencoder of handwritten digits."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module, Sequential, Tanh

from natgrad.data import mnist, shipped
from natgrad.experiments.blh18 import contest
from natgrad.experiments.blh18.contest import Contestant, Rule, Step
from natgrad.lab.cells import Result
from natgrad.lab.environment import cores
from natgrad.likelihoods import Gaussian
from natgrad.optim import NGD

Source = Literal["MNIST", "digits"]
Start = Literal["uniform", "Glorot"]
"""Weights uniform in ±1/√fan-in, or Gaussian with variance 2/(fan-in + fan-out)."""

PUBLISHED, DEFAULT = "NGD published", "NGD default"

_MNIST_PIXELS = 784
_DIGITS_TESTS = 297  # of 1797 images


def published(model: Module, criterion: Gaussian) -> NGD:
    """Return [BLH18] (20)–(21), K = 1."""
    return NGD.published(model, criterion)


def default(model: Module, criterion: Gaussian) -> NGD:
    """Return the optimizer as it comes."""
    return NGD(model, criterion)


NATURAL: dict[str, Callable[[Module, Gaussian], NGD]] = {PUBLISHED: published, DEFAULT: default}


@cache
def images(source: Source) -> tuple[Tensor, Tensor]:
    """Return training and test images as rows in [0, 1].

    Raises:
        InvalidInputError: If scikit-learn, which carries the small digits, is not installed.
        MnistUnavailableError: If MNIST is not here and cannot be fetched.
    """
    if source == "MNIST":
        data = mnist.load()
        return data.train_images, data.test_images
    rows, _ = shipped.digits()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    rows = rows[order]
    return rows[_DIGITS_TESTS:], rows[:_DIGITS_TESTS]


def widths(hidden: tuple[int, ...], pixels: int) -> tuple[int, ...]:
    """Return the sizes of all layers; hidden ones shrink with the number of pixels below MNIST's.

    Example:
        >>> widths((400, 50, 400), 64)
        (64, 32, 4, 32, 64)
    """
    return (pixels, *(max(2, size * pixels // _MNIST_PIXELS) for size in hidden), pixels)


def autoencoder(sizes: tuple[int, ...], start: Start, seed: int) -> Sequential:
    """Return tanh layers and a last linear one, biases zero."""
    generator = torch.Generator().manual_seed(seed)
    layers: list[Module] = []
    for into, out in pairwise(sizes):
        layer = Linear(into, out)
        with torch.no_grad():
            if start == "uniform":
                bound = 1 / math.sqrt(into)
                layer.weight.uniform_(-bound, bound, generator=generator)
            else:
                layer.weight.normal_(0, math.sqrt(2 / (into + out)), generator=generator)
            layer.bias.zero_()
        layers += [layer, Tanh()]
    return Sequential(*layers[:-1])


@dataclass(frozen=True)
class Trial:
    """One learning rate, judged on images held out of the training set.

    Attributes:
        source: The images.
        examples: How many training images, those held out included; None for all.
        hidden: Sizes of the hidden layers.
        rule: The method.
        batch: M.
        rate: Its learning rate.
        passes: Passes over the training images.
        seed: Of the start and of the order of images.
    """

    source: Source
    examples: int | None
    hidden: tuple[int, ...]
    rule: Rule
    batch: int
    rate: float
    passes: int
    seed: int


def trial(config: Trial) -> Result:
    """Return the mean squared validation error of a pixel; a sixth of the images is held out."""
    rows = images(config.source)[0][: config.examples]
    held = rows[: len(rows) // 6]
    rows = rows[len(rows) // 6 :]
    model = autoencoder(widths(config.hidden, rows.shape[1]), "uniform", config.seed)
    entry = Contestant(
        model,
        contest.first_order(model, config.rule, config.rate),
        batch=config.batch,
        passes=config.passes,
        every=len(rows),
    )
    found = contest.run([entry], (rows, rows), (held, held), config.seed)
    return {"validation": np.asarray(found["test"][0, -1])}


@dataclass(frozen=True)
class Entry:
    """A method in the race; rule, batch size, learning rate, passes.

    The rate of natural gradients is 1 and not used.
    """

    rule: Rule | Literal["NGD published", "NGD default"]
    batch: int
    rate: float
    passes: int


@dataclass(frozen=True)
class Race:
    """All methods from the same weights.

    Attributes:
        source: The images.
        examples: How many training images; None for all.
        hidden: Sizes of the hidden layers.
        start: Initial weights.
        entries: The methods.
        every: Examples between two evaluations.
        seed: Of the start and of the order of images.
    """

    source: Source
    examples: int | None
    hidden: tuple[int, ...]
    start: Start
    entries: tuple[Entry, ...]
    every: int
    seed: int


def race(config: Race) -> Result:
    """Return `examples`, `seconds` and `test` error of each method; only seconds vary by run."""
    train, test = images(config.source)
    train = train[: config.examples]
    contest.warm_up([partial(_step, entry) for entry in config.entries])
    entered = []
    for entry in config.entries:
        model = autoencoder(widths(config.hidden, train.shape[1]), config.start, config.seed)
        step, every = _step(entry, model), config.every
        entered.append(Contestant(model, step, batch=entry.batch, passes=entry.passes, every=every))
    return contest.run(entered, (train, train), (test, test), config.seed)


@dataclass(frozen=True)
class Costs:
    """Steps of several methods against the clock on the wall.

    Attributes:
        source: The images.
        examples: How many training images; None for all.
        hidden: Sizes of the hidden layers.
        entries: The methods.
        turn: Examples that a method sees in its turn.
        turns: How often each has its turn.
    """

    source: Source
    examples: int | None
    hidden: tuple[int, ...]
    entries: tuple[Entry, ...]
    turn: int
    turns: int


def costs(config: Costs) -> Result:
    """Return `seconds` of a step, on one thread and on all cores, by method; and `cores`.

    Methods have their turns one after the other, from fresh weights. Nothing else should run.
    """
    rows = images(config.source)[0][: config.examples]
    available = cores()
    contest.warm_up([partial(_step, entry) for entry in config.entries])
    found = np.zeros((2, len(config.entries)))
    runs = [
        (place, threads, at, entry, _step(entry, autoencoder(sizes, "uniform", 0)))
        for sizes in [widths(config.hidden, rows.shape[1])]
        for place, threads in enumerate((1, available))
        for at, entry in enumerate(config.entries)
    ]
    before = torch.get_num_threads()
    try:
        for turn in range(config.turns):
            for place, threads, at, entry, step in runs:
                torch.set_num_threads(threads)
                found[place, at] += _turn(rows, entry.batch, step, turn, config.turn)
    finally:
        torch.set_num_threads(before)
    return {"seconds": found / config.turns, "cores": np.asarray(available)}


def _turn(rows: Tensor, batch: int, step: Step, turn: int, examples: int) -> float:
    """Return the seconds of a step, on average over some examples."""
    steps = max(1, examples // batch)
    batches = max(1, len(rows) // batch)
    began = time.perf_counter()
    for k in range(turn * steps, (turn + 1) * steps):
        x = rows[k % batches * batch :][:batch]
        step(x, x)
    return (time.perf_counter() - began) / steps


def _step(entry: Entry, model: Module) -> Step:
    if entry.rule == "NGD published" or entry.rule == "NGD default":
        return contest.natural(model, NATURAL[entry.rule])
    return contest.first_order(model, entry.rule, entry.rate)
