"""Cells of Figure 1D: rates are tuned, then all methods race, by start and by clock.

The functions of the cells are in `_autoencoder`, which does not import the config. So finished
races stay valid when a preset or a title changes.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from natgrad.data import mnist
from natgrad.experiments.blh18._contest import best_rate
from natgrad.experiments.blh18._rates import Rule, rates_of
from natgrad.experiments.blh18.fig1d._autoencoder import (
    DEFAULT,
    NATURAL,
    PUBLISHED,
    Entry,
    Race,
    Source,
    Start,
    Trial,
    WallRace,
    race,
    race_on_all_cores,
    trial,
)
from natgrad.experiments.blh18.fig1d.config import Autoencoder
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep

FIRST_ORDER: dict[str, Rule] = {"SGD": "SGD", "momentum": "momentum", "Adam": "Adam"}
METHODS = (*FIRST_ORDER, *NATURAL)
GLOROT = ("SGD", *NATURAL)
"""Methods that also run from Glorot's weights, where SGD needs a smaller rate."""
WALL = ("SGD", PUBLISHED, DEFAULT)
"""Methods that are also timed by the wall clock."""


def compute(config: Autoencoder, sweep: Sweep) -> Arrays:
    """Return tuned rates, and the curves of three races that differ in start or clock."""
    source = available(config.data)
    arrays = Arrays(
        seed=range(config.seeds), method=METHODS, first_order=list(FIRST_ORDER),
        glorot_seed=range(config.glorot_seeds), glorot_method=GLOROT,
        wall_seed=range(config.wall_seeds), wall_method=WALL,
    )  # fmt: skip
    rates = _tune(config, source, sweep, arrays)
    first_order = tuple(
        Entry(
            rule,
            config.batch_of(rule),
            rate,
            config.passes if rule == "SGD" else config.first_order_passes,
        )
        for rule, rate in zip(FIRST_ORDER.values(), rates, strict=True)
    )
    natural = (
        Entry("NGD published", config.published_batch, 1.0, config.published_passes),
        Entry("NGD known output", config.published_batch, 1.0, config.known_passes),
        Entry("NGD default", config.default_batch, 1.0, config.default_passes),
    )
    glorot = Entry("SGD", config.batch, config.glorot_rate, config.passes)

    def given(start: Start, entered: tuple[Entry, ...], seed: int) -> Race:
        return Race(source, config.examples, config.hidden, start, entered, config.every, seed)

    races = [given("uniform", (*first_order, *natural), seed) for seed in range(config.seeds)]
    races += [given("Glorot", (glorot, *natural), seed) for seed in range(config.glorot_seeds)]
    found = sweep(
        [Cell(race, r, f"race from {r.start} weights, seed {r.seed}") for r in races], "race"
    )
    _add(arrays, "", found[: config.seeds])
    _add(arrays, "glorot_", found[config.seeds :])
    entered = (first_order[0], natural[0], natural[-1])  # those of `WALL`
    wall = []
    for seed in range(config.wall_seeds):  # one sweep each, so that each runs alone on the machine
        timed = WallRace(given("uniform", entered, seed), config.wall_trial)
        wall += sweep([Cell(race_on_all_cores, timed, f"seed {seed}")], "race on all cores")
    _add(arrays, "wall_", wall)
    arrays.add("wall_threads", np.stack([f["threads"] for f in wall]), "wall_seed", "wall_method")
    arrays.add("cores", wall[0]["cores"])
    arrays.add("mnist", source == "MNIST")
    return arrays


def _add(arrays: Arrays, prefix: str, found: Sequence[Result]) -> None:
    """Store the curves of a race, seed by seed."""
    arrays.add(f"{prefix}examples", found[0]["examples"], f"{prefix}method", f"{prefix}point")
    for name in ("seconds", "test"):
        values = np.stack([f[name] for f in found])
        axes = (f"{prefix}seed", f"{prefix}method", f"{prefix}point")
        arrays.add(f"{prefix}{name}", values, *axes)


def _tune(config: Autoencoder, source: Source, sweep: Sweep, arrays: Arrays) -> list[float]:
    """Return the best rate of each first-order method by validation error; store all trials."""
    asked = [
        Cell(
            trial,
            Trial(
                source, config.examples, config.hidden, rule, config.batch_of(rule), rate,
                config.tuning_passes, config.seeds,
            ),
            f"{rule}, rate {rate:g}",
        )
        for rule in FIRST_ORDER.values()
        for rate in rates_of(config, rule)
    ]  # fmt: skip
    found = np.array([f["validation"] for f in sweep(asked, "tuning")])
    found = found.reshape(len(FIRST_ORDER), -1)
    tried = np.array([rates_of(config, rule) for rule in FIRST_ORDER.values()])
    chosen = [float(row[best_rate(v[None])]) for row, v in zip(tried, found, strict=True)]
    arrays.add("tuning_rate", tried, "first_order", "trial")
    arrays.add("tuning_validation", found, "first_order", "trial")
    arrays.add("rate", chosen, "first_order")
    return chosen


def available(wish: Literal["MNIST", "digits", "either"]) -> Source:
    """Return the images to use."""
    if wish != "either":
        return wish
    try:
        mnist.load()
    except mnist.MnistUnavailableError:
        return "digits"
    return "MNIST"
