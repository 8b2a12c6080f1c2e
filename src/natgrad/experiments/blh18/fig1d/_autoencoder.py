"""The race on an autoencoder of handwritten digits."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module, Sequential, Tanh

from natgrad.data import mnist
from natgrad.experiments._data import shipped
from natgrad.experiments.blh18 import _contest as contest
from natgrad.experiments.blh18._contest import Contestant, Step
from natgrad.experiments.blh18._rates import Rule
from natgrad.lab._environment import cores
from natgrad.lab.cell import Result
from natgrad.likelihoods import Gaussian
from natgrad.optim import NGD, Factors, Quadratic

Source = Literal["MNIST", "digits"]
Start = Literal["uniform", "Glorot"]
"""Weights uniform in ±1/√fan-in, or Gaussian with variance 2/(fan-in + fan-out)."""

PUBLISHED, KNOWN, DEFAULT = "NGD published", "NGD known output", "NGD default"

_MNIST_PIXELS = 784
_DIGITS_TESTS = 297  # of 1797 images
_TURNS = 3  # trials per method when its number of threads is chosen


def measured(model: Module, criterion: Gaussian) -> NGD:
    """Return NGD with measured lengths and whole factors, the default when the figure was made."""
    whole = Factors(block=None, rows=None, memory=750)
    return NGD(model, criterion, step_length=Quadratic(), factors=whole)


NATURAL: dict[str, Callable[[Module, Gaussian], NGD]] = {
    PUBLISHED: NGD.published,
    KNOWN: NGD.known_output,
    DEFAULT: measured,
}
"""[BLH18] (20)–(21) with K = 1, the same with the last error factor known, measured lengths."""


@cache
def images(source: Source) -> tuple[Tensor, Tensor]:
    """Return training and test images as rows in [0, 1].

    Raises:
        InvalidInputError: If scikit-learn, which contains the small digits, is not installed.
        MnistUnavailableError: If MNIST is not on disk and cannot be fetched.
    """
    if source == "MNIST":
        data = mnist.load()
        return data.train_images, data.test_images
    rows, _ = shipped.digits()
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))
    rows = rows[order]
    return rows[_DIGITS_TESTS:], rows[:_DIGITS_TESTS]


def widths(hidden: tuple[int, ...], pixels: int) -> tuple[int, ...]:
    """Return the widths of all layers; hidden ones are reduced for fewer pixels than MNIST has.

    Example:
        >>> widths((400, 50, 400), 64)
        (64, 32, 4, 32, 64)
    """
    return (pixels, *(max(2, size * pixels // _MNIST_PIXELS) for size in hidden), pixels)


def autoencoder(sizes: tuple[int, ...], start: Start, seed: int) -> Sequential:
    """Return tanh layers and a linear output layer, with zero biases."""
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
    """One learning rate, validated on images held out of the training set.

    Attributes:
        source: The images.
        examples: Number of training images, including those held out; None for all.
        hidden: Widths of the hidden layers.
        rule: The method.
        batch: Batch size M.
        rate: Its learning rate.
        passes: Passes over the training images.
        seed: Seed of the start and of the order of images.
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
    """Return the mean squared validation error per pixel; a sixth of the images is held out."""
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
    """A method in the race: rule, batch size, learning rate and passes.

    Natural gradients ignore the rate.
    """

    rule: Rule | Literal["NGD published", "NGD known output", "NGD default"]
    batch: int
    rate: float
    passes: int


@dataclass(frozen=True)
class Race:
    """All methods from the same weights.

    Attributes:
        source: The images.
        examples: Number of training images; None for all.
        hidden: Widths of the hidden layers.
        start: Initial weights.
        entries: The methods.
        every: Examples between two evaluations.
        seed: Seed of the start and of the order of images.
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
    return _race(config, [None] * len(config.entries))


@dataclass(frozen=True)
class WallRace:
    """A race timed by the wall clock.

    Attributes:
        race: The race.
        trial: Examples per trial of a method when its number of threads is chosen.
    """

    race: Race
    trial: int


def race_on_all_cores(config: WallRace) -> Result:
    """Return a `race` timed by the wall clock, with the `threads` of each method and `cores`.

    Before the race every method is tried with one thread and with all cores, on weights that are
    then discarded. It races with whichever was faster. Nothing else should run at the same time.
    """
    choices = (1, cores())
    contest.warm_up([partial(_step, entry) for entry in config.race.entries])
    turns = [[_turns(config, threads) for threads in choices] for _ in range(_TURNS)]
    threads = [choices[best] for best in np.min(turns, axis=0).argmin(axis=0)]
    found = _race(config.race, threads)
    return {**found, "threads": np.asarray(threads), "cores": np.asarray(choices[1])}


def _race(config: Race, threads: Sequence[int | None]) -> Result:
    train, test = images(config.source)
    train = train[: config.examples]
    contest.warm_up([partial(_step, entry) for entry in config.entries])
    entered = []
    for entry, own in zip(config.entries, threads, strict=True):
        model = autoencoder(widths(config.hidden, train.shape[1]), config.start, config.seed)
        entered.append(
            Contestant(
                model,
                _step(entry, model),
                batch=entry.batch,
                passes=entry.passes,
                every=config.every,
                threads=own,
            )
        )
    return contest.run(entered, (train, train), (test, test), config.seed)


def _turns(config: WallRace, threads: int) -> list[float]:
    """Return the seconds of one pass over the trial's examples, by method."""
    rows = images(config.race.source)[0][: config.trial]
    found = []
    for entry in config.race.entries:
        step = _step(entry, autoencoder(widths(config.race.hidden, rows.shape[1]), "uniform", 0))
        with contest.using(threads):
            began = time.perf_counter()
            for x in torch.split(rows, entry.batch):
                step(x, x)
            found.append(time.perf_counter() - began)
    return found


def _step(entry: Entry, model: Module) -> Step:
    if optimizer := NATURAL.get(entry.rule):
        return contest.natural(model, optimizer)
    return contest.first_order(model, cast(Rule, entry.rule), entry.rate)
