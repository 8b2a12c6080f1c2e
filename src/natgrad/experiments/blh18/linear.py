"""What Figures 1A, 1B and 1C share: one config, one computation, one experiment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from natgrad.experiments.blh18 import linear_cells as cells
from natgrad.experiments.blh18 import linear_claims, tuning
from natgrad.experiments.blh18.contest import Rule
from natgrad.experiments.blh18.linear_claims import Promise
from natgrad.experiments.blh18.problems import Problem
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import Experiment, Preset, Sweep

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST_ORDER: dict[str, tuple[Rule, int]] = {
    "SGD": ("SGD", 20),
    "momentum": ("momentum", 20),
    "momentum, M = 100": ("momentum", 100),
    "Adam": ("Adam", 20),
    "Adam, M = 100": ("Adam", 100),
}
"""Rule and batch size by name. M = 20 is the paper's; larger batches pay in seconds."""

METHODS = (*FIRST_ORDER, *cells.NATURAL)


@dataclass(frozen=True, kw_only=True)
class DeepLinear:
    """Learning a random deep linear network."""

    widths: tuple[int, ...]
    """Sizes of the layers, the input's first."""
    power: float
    """Squared Frobenius norm of the whole map, of the teacher and at the start. Our choice."""
    examples: int = 10_000
    """Training data."""
    tests: int = 1_000
    """Test data."""
    noise: float = 1e-6
    """Variance of the noise on each output."""
    passes: int = 25
    """Passes over the training data of each method."""
    natural_batch: int = 1_000
    """Batch size of the natural gradients."""
    sgd_rates: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
    """Learning rates tried for SGD."""
    momentum_rates: tuple[float, ...] = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08)
    """Learning rates tried for SGD with momentum 0.9, at each batch size."""
    adam_rates: tuple[float, ...] = (2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2)
    """Learning rates tried for Adam, at each batch size."""
    tuning_passes: int = 5
    """Passes of each trial of a learning rate, on every problem; one rate serves them all."""
    decay_steps: int = 100
    """Steps of undamped natural gradient descent without noise."""
    seeds: int = 5
    """Random problems."""

    def __post_init__(self) -> None:
        """Refuse grids that favour a method."""
        tuning.refuse_favours(self)

    def problem(self, seed: int) -> Problem:
        """Return the random problem of a seed."""
        return Problem(self.widths, self.power, self.examples, self.tests, self.noise, seed)

    def rates(self, rule: Rule) -> tuple[float, ...]:
        """Return the grid of a method."""
        grids = {"SGD": self.sgd_rates, "momentum": self.momentum_rates, "Adam": self.adam_rates}
        return grids[rule]


def compute(promise: Promise, config: DeepLinear, sweep: Sweep) -> Arrays:
    """Return tuned rates, the curves of all methods, and the decay without noise."""
    arrays = Arrays(
        seed=range(config.seeds), method=METHODS, first_order=list(FIRST_ORDER)
    )  # fmt: skip
    rates = _tune(config, sweep, arrays)
    entered = tuple(
        cells.FirstOrder(rule, batch, rate)
        for (rule, batch), rate in zip(FIRST_ORDER.values(), rates, strict=True)
    )
    asked = [
        Cell(
            cells.race,
            cells.Race(config.problem(seed), entered, config.natural_batch, config.passes),
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
            cells.decay,
            cells.Decay(
                config.widths, config.power, max(1_000, 5 * config.widths[0]),
                promise.decay_start, promise.decay_rate, config.decay_steps, seed,
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
                config.problem(seed), rule, batch, config.rates(rule), config.tuning_passes
            ),
            f"rates of {name}, seed {seed}",
        )
        for name, (rule, batch) in FIRST_ORDER.items()
        for seed in range(config.seeds)
    ]
    found = np.stack([f["validation"] for f in sweep(asked, "tuning")])
    found = found.reshape(len(FIRST_ORDER), config.seeds, -1)
    tried = np.array([config.rates(rule) for rule, _ in FIRST_ORDER.values()])
    chosen = [float(row[tuning.best(trials)]) for row, trials in zip(tried, found, strict=True)]
    arrays.add("tuning_rate", tried, "first_order", "trial")
    arrays.add("tuning_validation", found, "first_order", "seed", "trial")
    arrays.add("rate", chosen, "first_order")
    return chosen


def experiment(
    name: str, title: str, promise: Promise, presets: dict[Preset, DeepLinear], minutes: float
) -> Experiment[DeepLinear]:
    """Return Figure 1A, 1B or 1C."""

    def claims(config: DeepLinear, arrays: Arrays) -> Sequence[Claim]:
        return linear_claims.claims(promise, config, arrays)

    def draw(config: DeepLinear, arrays: Arrays) -> "Figure":
        from natgrad.experiments.blh18.linear_picture import picture

        return picture(promise, config, arrays)

    def departures(config: DeepLinear, arrays: Arrays) -> Sequence[str]:
        return linear_claims.departures(promise, config, arrays)

    return Experiment(
        name=name,
        title=title,
        source=f"[BLH18] Figure 1{promise.panel}",
        presets=presets,
        minutes={"smoke": 0.2, "quick": 0.5, "paper": minutes},
        compute=lambda config, sweep: compute(promise, config, sweep),
        claims=claims,
        draw=draw,
        departures=departures,
    )
