"""Cells of Figures 1A, 1B and 1C: rates are tuned, then all methods race."""

import numpy as np

from natgrad.experiments.blh18._contest import best_rate
from natgrad.experiments.blh18._linear import race, tuning
from natgrad.experiments.blh18._linear.config import DeepLinear, Panel
from natgrad.experiments.blh18._linear.problems import Problem
from natgrad.experiments.blh18._rates import Rule, rates_of
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.experiment import Sweep

FIRST_ORDER: dict[str, tuple[Rule, int]] = {
    "SGD": ("SGD", 20),
    "momentum": ("momentum", 20),
    "momentum, M = 100": ("momentum", 100),
    "Adam": ("Adam", 20),
    "Adam, M = 100": ("Adam", 100),
}
"""Rule and batch size by name. M = 20 is the paper's; larger batches save seconds."""

METHODS = (*FIRST_ORDER, *race.NATURAL)


def compute(panel: Panel, config: DeepLinear, sweep: Sweep) -> Arrays:
    """Return tuned rates, the curves of all methods, and the decay without noise."""
    arrays = Arrays(
        seed=range(config.seeds), method=METHODS, first_order=list(FIRST_ORDER)
    )  # fmt: skip
    rates = _tune(config, sweep, arrays)
    entered = tuple(
        race.FirstOrder(rule, batch, rate)
        for (rule, batch), rate in zip(FIRST_ORDER.values(), rates, strict=True)
    )
    asked = [
        Cell(
            race.race,
            race.Race(problem(config, seed), entered, config.natural_batch, config.passes),
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
            race.decay,
            race.Decay(
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
    """Return the best rate of each first-order method by validation error; store all trials."""
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
