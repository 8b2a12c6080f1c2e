"""Cells of Figure 1A–C: the race on a deep linear network, and its decay without noise."""

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
from natgrad.experiments.blh18._contest import Contestant, Step, best_rate
from natgrad.experiments.blh18._linear import tuning
from natgrad.experiments.blh18._linear.config import DeepLinear, Panel
from natgrad.experiments.blh18._linear.problems import (
    Problem,
    linear_network,
    make,
    powered_factors,
)
from natgrad.experiments.blh18._rates import Rule, rates_of
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.likelihoods import Gaussian
from natgrad.optim import NGD, Adaptive, EqualShare, Factors, Fixed, PerLayer

PUBLISHED, DEFAULT, BEST = "NGD published", "NGD default", "NGD linear"


def published(model: Module, criterion: Gaussian) -> NGD:
    """Return [BLH18] (20)–(21), K = 1, from λ = 0.01."""
    return NGD.published(model, criterion, damping=0.01)


def default(model: Module, criterion: Gaussian) -> NGD:
    """Return the optimizer with default settings."""
    return NGD(model, criterion)


def best(model: Module, criterion: Gaussian) -> NGD:
    """Return what suits linear networks: exact factors, a length for every layer, bold damping."""
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

FIRST_ORDER: dict[str, tuple[Rule, int]] = {
    "SGD": ("SGD", 20),
    "momentum": ("momentum", 20),
    "momentum, M = 100": ("momentum", 100),
    "Adam": ("Adam", 20),
    "Adam, M = 100": ("Adam", 100),
}
"""Rule and batch size by name. M = 20 is the paper's; larger batches pay in seconds."""

METHODS = (*FIRST_ORDER, *NATURAL)


def compute(panel: Panel, config: DeepLinear, sweep: Sweep) -> Arrays:
    """Return tuned rates, the curves of all methods, and the decay without noise."""
    arrays = Arrays(
        seed=range(config.seeds), method=METHODS, first_order=list(FIRST_ORDER)
    )  # fmt: skip
    rates = _tune(config, sweep, arrays)
    entered = tuple(
        FirstOrder(rule, batch, rate)
        for (rule, batch), rate in zip(FIRST_ORDER.values(), rates, strict=True)
    )
    asked = [
        Cell(
            race,
            Race(problem(config, seed), entered, config.natural_batch, config.passes),
            f"race, seed {seed}",
        )
        for seed in range(config.seeds)
    ]
    found = sweep(asked, "race")
    arrays.add("examples", found[0]["examples"][0], "point")
    for name in ("seconds", "test"):
        arrays.add(name, np.stack([f[name] for f in found]), "seed", "method", "point")
    asked = [
        Cell(
            decay,
            Decay(
                config.widths, config.power, max(1_000, 5 * config.widths[0]),
                panel.decay_start, panel.decay_rate, config.decay_steps, seed,
            ),
            f"decay, seed {seed}",
        )
        for seed in range(config.seeds)
    ]  # fmt: skip
    excess = np.stack([f["excess"] for f in sweep(asked, "decay without noise")])
    arrays.add("excess", excess, "seed", "step")
    return arrays


def _tune(config: DeepLinear, sweep: Sweep, arrays: Arrays) -> list[float]:
    """Return the best rate of each first-order method by validation error, and keep all trials."""
    asked = [
        Cell(
            tuning.grid,
            tuning.Grid(
                problem(config, seed), rule, batch, rates_of(config, rule), config.tuning_passes
            ),
            f"rates of {name}, seed {seed}",
        )
        for name, (rule, batch) in FIRST_ORDER.items()
        for seed in range(config.seeds)
    ]
    found = np.stack([f["validation"] for f in sweep(asked, "tuning")])
    found = found.reshape(len(FIRST_ORDER), config.seeds, -1)
    tried = np.array([rates_of(config, rule) for rule, _ in FIRST_ORDER.values()])
    chosen = [float(row[best_rate(trials)]) for row, trials in zip(tried, found, strict=True)]
    arrays.add("tuning_rate", tried, "first_order", "trial")
    arrays.add("tuning_validation", found, "first_order", "seed", "trial")
    arrays.add("rate", chosen, "first_order")
    return chosen


def problem(config: DeepLinear, seed: int) -> Problem:
    """Return the random problem of a seed."""
    return Problem(config.widths, config.power, config.examples, config.tests, config.noise, seed)


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
        first_order: The tuned methods; those of `NATURAL` follow.
        natural_batch: M of the natural gradients, and examples between two evaluations of all.
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
    """Undamped natural gradient descent on a problem without noise, all data at each step.

    Attributes:
        widths: n₀ … n_L.
        power: ‖W‖_F² of the teacher and the start.
        examples: Number of data.
        start: `"random"`, as in the race. `"near"`: an orthogonal teacher, and all its weights
            perturbed by a tenth, for networks whose way from a random start meets det W = 0.
        rate: α, of which each layer takes 1/L.
        steps: Number of steps.
        seed: Of everything.
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
