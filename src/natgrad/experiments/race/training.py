"""One run: train for a budget of seconds, with evaluations on validation data."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.linalg import LinAlgError  # type: ignore[attr-defined]
from torch.nn import Module

from natgrad.errors import NonFiniteError
from natgrad.experiments.race._clock import Clock
from natgrad.experiments.race.problems import Problem
from natgrad.lab.cell import Result

_WORSE = 1e3  # a run has diverged when its score is this many times the initial one


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One contestant's settings in one run.

    Attributes:
        batch: Batch size.
        lr: Learning rate; None where the method sets it.
        horizon: The part of the run over which a cosine lowers the rate to a hundredth; 0 for a
            constant rate.
        damping: Initial damping, for methods that have one.
        average: a, to judge an average of the weights with weight a/(k + a) after step k; None for
            the last weights, and for what NGD does by default.
        momentum: Weight of the past in the average of gradients; None for the method's default.
        head: Whether Muon orthogonalizes the head too; None for other methods.
    """

    batch: int
    lr: float | None = None
    horizon: float = 0.0
    damping: float | None = None
    average: float | None = None
    momentum: float | None = None
    head: bool | None = None

    def rate(self, part: float) -> float:
        """Return the factor on the rate after this part of the budget.

        Example:
            >>> settings = Settings(batch=10, lr=1.0, horizon=0.5)
            >>> [round(settings.rate(part), 2) for part in (0.0, 0.25, 0.9)]
            [1.0, 0.5, 0.01]
        """
        if not self.horizon:
            return 1.0
        return max(0.01, 0.5 * (1 + math.cos(math.pi * min(1.0, part / self.horizon))))


@dataclass(frozen=True, kw_only=True)
class Run:
    """One contestant on one problem.

    Attributes:
        problem: Its name.
        method: The contestant's name.
        settings: Its settings.
        seed: Seed of the initial weights and of the order of samples.
        budget: Seconds of training, on the reference core.
        points: Number of evaluations on validation data.
        test: Whether to evaluate on test data after the run.
        machine: The machine that timed the run; another machine gives another result.
    """

    problem: str
    method: str
    settings: Settings
    seed: int
    budget: float
    points: int
    test: bool
    machine: str


class Learner(Protocol):
    """A network and the method that trains it."""

    def step(self, x: Tensor, y: Tensor) -> None:
        """Learn from a batch."""

    def scale(self, factor: float) -> None:
        """Set the learning rate to this factor of the initial one."""

    def judged(self) -> AbstractContextManager[None]:
        """Put the weights to evaluate into the network inside the block."""

    def size(self) -> int:
        """Return the bytes of the method's state."""


class Learning:
    """Base of all learners: a network, a problem, and settings."""

    def __init__(self, problem: Problem, model: Module, settings: Settings) -> None:
        self.problem, self.model, self.settings = problem, model, settings

    def judged(self) -> AbstractContextManager[None]:
        """Evaluate the last weights."""
        return nullcontext()

    def size(self) -> int:
        """Return no bytes."""
        return 0


def count_bytes(state: Any) -> int:
    """Return the bytes of all tensors in nested mappings and sequences, and of objects in them.

    Example:
        >>> count_bytes({"a": torch.zeros(3), "b": [torch.zeros(2, dtype=torch.float64), None]})
        28
    """
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    if isinstance(state, Mapping):
        return sum(count_bytes(value) for value in state.values())
    if isinstance(state, list | tuple):
        return sum(count_bytes(value) for value in state)
    kept = getattr(state, "__dict__", {})  # Shampoo's preconditioners are attributes of objects
    return sum(count_bytes(value) for value in kept.values() if isinstance(value, Tensor | list))


Start = Callable[[Run, Problem, Module], Learner]
"""Makes a contestant's learner."""


def train(run: Run, problem: Problem, start: Start) -> Result:
    """Return the seconds, scores and steps at each evaluation of a run, and its test score.

    Evaluations do not count as training time. A run ends at its budget, or when it diverges; then
    the last score is infinite.
    """
    model = problem.make(run.seed)
    learner = start(run, problem, model)
    clock = Clock()
    batches = shuffled(len(problem.train), run.settings.batch, run.seed)
    curve = [(0.0, problem.score(model, problem.validation)[0], 0)]
    steps, begun, due = 0, time.time(), look_times(run.budget, run.points)
    while clock.seconds < run.budget and math.isfinite(curve[-1][1]):
        while clock.seconds < due[0]:
            try:
                with clock.running():
                    learner.scale(run.settings.rate(clock.seconds / run.budget))
                    learner.step(*problem.batch(problem.train, next(batches)))
            except (NonFiniteError, LinAlgError):
                curve.append((clock.seconds, math.inf, steps))
                break
            steps += 1
        else:
            with learner.judged():
                score = problem.score(model, problem.validation)[0]
            fine = math.isfinite(score) and score <= _WORSE * curve[0][1]
            curve.append((clock.seconds, score if fine else math.inf, steps))
            due = [at for at in due if at > clock.seconds]
    with learner.judged():
        test = problem.score(model, problem.test) if run.test else (math.nan, math.nan)
    seconds, scores, counts = (np.array(column) for column in zip(*curve, strict=True))
    return {
        "seconds": seconds,
        "score": scores,
        "steps": counts,
        "test": np.array(test[0]),
        "test_error": np.array(test[1]),
        "bytes": np.array(learner.size()),
        "product": np.array(clock.product),
        "begun": np.array(begun),
    }


def look_times(budget: float, points: int) -> list[float]:
    """Return the times of evaluations on validation data; the last is at the end.

    Example:
        >>> look_times(6.0, 3)
        [2.0, 4.0, 6.0]
    """
    return [*(budget * k / points for k in range(1, points)), budget]


def shuffled(rows: int, batch: int, seed: int) -> Iterator[Tensor]:
    """Yield the rows of batches, in a new order in each epoch; no batch is short.

    Example:
        >>> batches = shuffled(5, 2, seed=0)
        >>> len(torch.cat([next(batches), next(batches)]).unique())
        4
    """
    source = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(rows, generator=source)
        yield from torch.split(order[: rows - rows % batch], batch)
