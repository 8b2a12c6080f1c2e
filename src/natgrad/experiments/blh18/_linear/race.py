"""The race on a deep linear network, and the decay of its loss without noise."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch.nn import Module

from natgrad.data.teachers import orthogonal_factors, teach
from natgrad.experiments.blh18 import _contest as contest
from natgrad.experiments.blh18._contest import Contestant, Step
from natgrad.experiments.blh18._linear.problems import (
    Problem,
    linear_network,
    make,
    powered_factors,
)
from natgrad.experiments.blh18._rates import Rule
from natgrad.lab.cell import Result
from natgrad.likelihoods import Gaussian
from natgrad.optim import NGD, Adaptive, EqualShare, Factors, Fixed, PerLayer, Quadratic

PUBLISHED, DEFAULT, BEST = "NGD published", "NGD default", "NGD linear"


def published(model: Module, criterion: Gaussian) -> NGD:
    """Return [BLH18] (20)–(21), K = 1, from λ = 0.01."""
    return NGD.published(model, criterion, damping=0.01)


def default(model: Module, criterion: Gaussian) -> NGD:
    """Return the optimizer with measured lengths, the default when the figure was made."""
    return NGD(model, criterion, step_length=Quadratic())


def best(model: Module, criterion: Gaussian) -> NGD:
    """Return NGD for linear networks: exact factors, a step length per layer, fast-falling λ."""
    return NGD(
        model,
        criterion,
        momentum=0.0,
        step_length=PerLayer(rows=250),
        damping=Adaptive(
            start=0.1,
            up=2.0,
            down=0.25,
            least_alpha=math.inf,
            least_share=0.5,
            floor=1e-8,
            relative_floor=0.0,
        ),
        factors=Factors(source="propagated"),
        refresh=1,
    )


NATURAL: dict[str, Callable[[Module, Gaussian], NGD]] = {
    PUBLISHED: published,
    DEFAULT: default,
    BEST: best,
}


@dataclass(frozen=True)
class FirstOrder:
    """A first-order method: rule, batch size and learning rate."""

    rule: Rule
    batch: int
    rate: float


@dataclass(frozen=True)
class Race:
    """All methods on one problem, from the same weights.

    Attributes:
        problem: What to learn.
        first_order: The tuned methods; those of `NATURAL` follow them.
        natural_batch: Batch size of the natural gradients, and examples between two evaluations.
        passes: Passes over the training data.
    """

    problem: Problem
    first_order: tuple[FirstOrder, ...]
    natural_batch: int
    passes: int


def race(config: Race) -> Result:
    """Return `examples`, `seconds` and `test` error of each method; only seconds vary by run."""
    task = make(config.problem)

    trains: list[tuple[Callable[[Module], Step], int]] = [
        (partial(contest.first_order, rule=method.rule, rate=method.rate), method.batch)
        for method in config.first_order
    ]
    trains += [
        (partial(contest.natural, optimizer=optimizer), config.natural_batch)
        for optimizer in NATURAL.values()
    ]
    contest.warm_up([train for train, _ in trains])
    entered = []
    for train, batch in trains:
        model, every = linear_network(task.start), config.natural_batch
        passes = config.passes
        entered.append(Contestant(model, train(model), batch=batch, passes=passes, every=every))
    return contest.run(entered, task.train, task.test, config.problem.seed)


@dataclass(frozen=True)
class Decay:
    """Undamped natural gradient descent on a problem without noise, with all data in each step.

    Attributes:
        widths: n₀ … n_L.
        power: ‖W‖_F² of the teacher and the start.
        examples: Number of samples.
        start: `"random"` as in the race, or `"near"`: an orthogonal teacher, all its weights
            perturbed by a tenth, for networks whose path from a random start meets det W = 0.
        rate: Step length α; each layer takes 1/L of it.
        steps: Number of steps.
        seed: Seed of everything random.
    """

    widths: tuple[int, ...]
    power: float
    examples: int
    start: Literal["random", "near"]
    rate: float
    steps: int
    seed: int


def decay(config: Decay) -> Result:
    """Return the `excess` loss before each step, in double precision. [BLH18] (10), (14)–(15)."""
    generator = torch.Generator().manual_seed(config.seed)
    if config.start == "random":
        teacher = powered_factors(config.widths, config.power, generator)
        start = powered_factors(config.widths, config.power, generator)
    else:
        teacher = orthogonal_factors(config.widths, generator)
        start = tuple(
            w + 0.1 * w.square().mean().sqrt()
            * torch.randn(w.shape, dtype=w.dtype, generator=generator)
            for w in teacher
        )  # fmt: skip
    data = teach(teacher, generator, examples=config.examples, tests=1, noise=0.0)
    model, criterion = linear_network(start), Gaussian()
    optimizer = NGD(
        model,
        criterion,
        lr=config.rate,
        momentum=0.0,
        step_length=EqualShare(),
        damping=Fixed(start=0.0),
        factors=Factors(source="propagated", memory=0.0),
        refresh=1,
    )
    losses = []
    for _ in range(config.steps):
        loss = criterion(model(data.train_inputs), data.train_targets)
        losses.append(float(loss.detach()))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return {"excess": np.array(losses)}
