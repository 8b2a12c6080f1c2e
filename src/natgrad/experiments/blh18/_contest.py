"""Optimizers that take turns in training copies of one network, each with its own clock.

The clock measures the CPU time of training steps, or their wall-clock time for a contestant with
its own number of threads. Drawing batches and evaluation do not count. Everything a contest returns
except the seconds is the same, bit for bit, in every run.
"""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor
from torch.nn import Linear, Module, Sequential
from torch.nn.functional import mse_loss
from torch.optim import Optimizer

from natgrad.errors import NonFiniteError
from natgrad.experiments.blh18._rates import Rule
from natgrad.lab.cell import Result
from natgrad.likelihoods import Gaussian
from natgrad.optim import NGD

MOMENTUM = 0.9
_DIVERGED = 1e6  # times the first test error

Step = Callable[[Tensor, Tensor], None]


def first_order(model: Module, rule: Rule, rate: float) -> Step:
    """Return one step on a batch, loss ½|y − f|² averaged over samples, with fused kernels."""
    parameters = list(model.parameters())
    optimizer: Optimizer
    if rule == "Adam":
        optimizer = torch.optim.Adam(parameters, lr=rate, fused=True)
    else:
        momentum = MOMENTUM if rule == "momentum" else 0.0
        optimizer = torch.optim.SGD(parameters, lr=rate, momentum=momentum, fused=True)

    def step(x: Tensor, y: Tensor) -> None:
        loss = mse_loss(model(x), y, reduction="sum") / (2 * len(x))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()

    return step


def natural(model: Module, optimizer: Callable[[Module, Gaussian], NGD]) -> Step:
    """Return one step on a batch with the Gaussian likelihood as criterion."""
    criterion = Gaussian()
    ngd = optimizer(model, criterion)

    def step(x: Tensor, y: Tensor) -> None:
        loss = criterion(model(x), y)
        ngd.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        ngd.step()

    return step


def warm_up(entrants: Sequence[Callable[[Module], Step]]) -> None:
    """Let every method take two untimed steps on a tiny network.

    On a fresh installation the first use of a function takes seconds, because Python and PyTorch
    load code. This must not count as a method's time.
    """
    x = torch.linspace(-1, 1, 12).reshape(4, 3)
    for train in entrants:
        step = train(Sequential(Linear(3, 3, bias=False), Linear(3, 3, bias=False)))
        for _ in range(2):
            step(x, x.flip(0))


@contextmanager
def using(threads: int | None) -> Iterator[None]:
    """Let PyTorch use this many threads inside the block; None changes nothing."""
    before = torch.get_num_threads()
    torch.set_num_threads(before if threads is None else threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Contestant:
    """A network, the way to train it, and its measurements.

    Args:
        model: The network; it is trained in place.
        step: Train on one batch.
        batch: Batch size M.
        passes: Passes over the training data.
        every: Examples between two evaluations.
        threads: Number of threads of its steps, which are then timed by the wall clock. By default
            the process's threads, timed in CPU seconds.
    """

    def __init__(
        self,
        model: Module,
        step: Step,
        *,
        batch: int,
        passes: int,
        every: int,
        threads: int | None = None,
    ) -> None:
        self.model, self.step, self.batch, self.passes = model, step, batch, passes
        self.every, self.threads = max(1, every // batch), threads
        self.examples, self.seconds, self.errors = [0.0], [0.0], list[float]()
        self.alive = True

    def train(self, x: Tensor, y: Tensor, test: tuple[Tensor, Tensor]) -> None:
        """Train once on all data in the given order; a network that has diverged is not trained."""
        steps = len(x) // self.batch
        for first in range(0, steps, self.every):
            last = min(first + self.every, steps)
            spent = self._chunk(x, y, range(first, last)) if self.alive else 0.0
            error = self.evaluate(test) if self.alive else math.inf
            self.alive = error < _DIVERGED * self.errors[0]
            self.examples.append(self.examples[-1] + (last - first) * self.batch)
            self.seconds.append(self.seconds[-1] + spent)
            self.errors.append(error)

    def _chunk(self, x: Tensor, y: Tensor, steps: range) -> float:
        """Return the seconds of some steps."""
        clock = time.process_time if self.threads is None else time.perf_counter
        with using(self.threads):
            size, began = self.batch, clock()
            try:
                for k in steps:
                    self.step(x[k * size : (k + 1) * size], y[k * size : (k + 1) * size])
            except NonFiniteError:
                self.alive = False
            return clock() - began

    @torch.no_grad()
    def evaluate(self, test: tuple[Tensor, Tensor]) -> float:
        """Return the mean squared error of one output."""
        self.model.eval()
        error = float(mse_loss(self.model(test[0]), test[1]))
        self.model.train()
        return error if math.isfinite(error) else math.inf


def run(
    contestants: Sequence[Contestant],
    train: tuple[Tensor, Tensor],
    test: tuple[Tensor, Tensor],
    seed: int,
) -> Result:
    """Train all contestants, in turn for each pass, on the same order of the data.

    Returns:
        `examples`, `seconds` and `test` of shape `(contestants, points)`. Rows of contestants with
        fewer points than others end with NaN.
    """
    generator = torch.Generator().manual_seed(seed)
    for contestant in contestants:
        contestant.errors.append(contestant.evaluate(test))
    for turn in range(max(c.passes for c in contestants)):
        order = torch.randperm(len(train[0]), generator=generator)
        x, y = train[0][order], train[1][order]
        for contestant in contestants:
            if turn < contestant.passes:
                contestant.train(x, y, test)
    return {
        "examples": _padded([c.examples for c in contestants]),
        "seconds": _padded([c.seconds for c in contestants]),
        "test": _padded([c.errors for c in contestants]),
    }


def _padded(rows: Sequence[Sequence[float]]) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    table = np.full((len(rows), max(len(row) for row in rows)), np.nan)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return table


def best_rate(validation: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> int:
    """Return the column with the smallest geometric mean over rows.

    Example:
        >>> best_rate(np.array([[1.0, 0.1], [1.0, np.inf]]))
        0
    """
    return int(np.argmin(np.log(validation).mean(axis=0)))
