"""[BLH18] Figure 1D: an autoencoder of MNIST with tanh layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from natgrad.data import mnist
from natgrad.experiments.blh18 import autoencoder_cells as cells
from natgrad.experiments.blh18 import fig1d_claims, tuning
from natgrad.experiments.blh18.contest import Rule
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.claim import Claim
from natgrad.lab.experiment import Experiment, Sweep
from natgrad.lab.registry import register

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIRST_ORDER: dict[str, Rule] = {"SGD": "SGD", "momentum": "momentum", "Adam": "Adam"}
METHODS = (*FIRST_ORDER, *cells.NATURAL)
GLOROT = ("SGD", *cells.NATURAL)
"""Methods that also run from Glorot's weights, where SGD needs a smaller rate."""
WALL = ("SGD", cells.PUBLISHED, cells.DEFAULT)
"""Methods that also run by the clock on the wall."""


@dataclass(frozen=True, kw_only=True)
class Autoencoder:
    """Training an autoencoder of handwritten digits."""

    data: Literal["MNIST", "digits", "either"] = "MNIST"
    """MNIST; the small digits of scikit-learn; or MNIST where it can be had, else digits."""
    examples: int | None = None
    """Training images; None for all."""
    hidden: tuple[int, ...] = (400, 200, 100, 50, 100, 200, 400)
    """Sizes of the hidden layers for MNIST's 784 pixels; they shrink with the number of pixels."""
    batch: int = 20
    """Batch size of SGD."""
    large_batch: int = 100
    """Batch size of momentum and Adam, which gain seconds by it."""
    published_batch: int = 1_000
    """Batch size of eq. 20, as published and with the last error factor known."""
    default_batch: int = 750
    """Batch size of NGD with default settings."""
    passes: int = 20
    """Passes of SGD over the training images."""
    first_order_passes: int = 8
    """Passes of momentum and Adam."""
    published_passes: int = 8
    """Passes of eq. 20 as published."""
    known_passes: int = 5
    """Passes of eq. 20 with the last error factor known."""
    default_passes: int = 3
    """Passes of NGD with default settings."""
    every: int = 4_000
    """Examples between two evaluations."""
    sgd_rates: tuple[float, ...] = (0.01, 0.02, 0.04, 0.08)
    """Learning rates tried for SGD."""
    momentum_rates: tuple[float, ...] = (0.005, 0.01, 0.02, 0.04)
    """Learning rates tried for SGD with momentum 0.9."""
    adam_rates: tuple[float, ...] = (5e-4, 1e-3, 2e-3, 4e-3)
    """Learning rates tried for Adam."""
    tuning_passes: int = 1
    """Passes of each trial of a learning rate."""
    seeds: int = 3
    """Initial weights and orders of the images."""
    glorot_seeds: int = 3
    """Runs from Glorot's weights."""
    wall_seeds: int = 3
    """Runs by the clock on the wall."""
    wall_trial: int = 6_000
    """Examples of a turn when the threads of each method are chosen."""
    glorot_rate: float = 0.01
    """SGD's learning rate from Glorot's weights: rates from 0.014 diverge before 20 epochs."""

    def __post_init__(self) -> None:
        """Refuse grids that favour a method."""
        tuning.refuse_favours(self)

    def rates(self, rule: Rule) -> tuple[float, ...]:
        """Return the grid of a method."""
        grids = {"SGD": self.sgd_rates, "momentum": self.momentum_rates, "Adam": self.adam_rates}
        return grids[rule]

    def batch_of(self, rule: Rule) -> int:
        """Return M of a first-order method."""
        return self.batch if rule == "SGD" else self.large_batch


def available(wish: Literal["MNIST", "digits", "either"]) -> cells.Source:
    """Return the images to use."""
    if wish != "either":
        return wish
    try:
        mnist.load()
    except mnist.MnistUnavailableError:
        return "digits"
    return "MNIST"


def compute(config: Autoencoder, sweep: Sweep) -> Arrays:
    """Return tuned rates, and the curves of three races: by start, and by clock."""
    source = available(config.data)
    arrays = Arrays(
        seed=range(config.seeds), method=METHODS, first_order=list(FIRST_ORDER),
        glorot_seed=range(config.glorot_seeds), glorot_method=GLOROT,
        wall_seed=range(config.wall_seeds), wall_method=WALL,
    )  # fmt: skip
    rates = _tune(config, source, sweep, arrays)
    first_order = tuple(
        cells.Entry(
            rule,
            config.batch_of(rule),
            rate,
            config.passes if rule == "SGD" else config.first_order_passes,
        )
        for rule, rate in zip(FIRST_ORDER.values(), rates, strict=True)
    )
    natural = (
        cells.Entry("NGD published", config.published_batch, 1.0, config.published_passes),
        cells.Entry("NGD known output", config.published_batch, 1.0, config.known_passes),
        cells.Entry("NGD default", config.default_batch, 1.0, config.default_passes),
    )
    glorot = cells.Entry("SGD", config.batch, config.glorot_rate, config.passes)

    def race(start: cells.Start, entered: tuple[cells.Entry, ...], seed: int) -> cells.Race:
        return cells.Race(
            source, config.examples, config.hidden, start, entered, config.every, seed
        )

    races = [race("uniform", (*first_order, *natural), seed) for seed in range(config.seeds)]
    races += [race("Glorot", (glorot, *natural), seed) for seed in range(config.glorot_seeds)]
    found = sweep(
        [Cell(cells.race, r, f"race from {r.start} weights, seed {r.seed}") for r in races], "race"
    )
    _add(arrays, "", found[: config.seeds])
    _add(arrays, "glorot_", found[config.seeds :])
    entered = (first_order[0], natural[0], natural[-1])  # those of `WALL`
    wall = []
    for seed in range(config.wall_seeds):  # one sweep each: alone on the machine
        given = cells.WallRace(race("uniform", entered, seed), config.wall_trial)
        wall += sweep([Cell(cells.race_on_all_cores, given, f"seed {seed}")], "race on all cores")
    _add(arrays, "wall_", wall)
    arrays.add("wall_threads", np.stack([f["threads"] for f in wall]), "wall_seed", "wall_method")
    arrays.add("cores", wall[0]["cores"])
    arrays.add("mnist", source == "MNIST")
    return arrays


def _add(arrays: Arrays, prefix: str, found: Sequence[Result]) -> None:
    """Keep the curves of a race, seed by seed."""
    arrays.add(f"{prefix}examples", found[0]["examples"], f"{prefix}method", f"{prefix}point")
    for name in ("seconds", "test"):
        values = np.stack([f[name] for f in found])
        axes = (f"{prefix}seed", f"{prefix}method", f"{prefix}point")
        arrays.add(f"{prefix}{name}", values, *axes)


def _tune(config: Autoencoder, source: cells.Source, sweep: Sweep, arrays: Arrays) -> list[float]:
    """Return the best rate of each first-order method by validation error, and keep all trials."""
    asked = [
        Cell(
            cells.trial,
            cells.Trial(
                source, config.examples, config.hidden, rule, config.batch_of(rule), rate,
                config.tuning_passes, config.seeds,
            ),
            f"{rule}, rate {rate:g}",
        )
        for rule in FIRST_ORDER.values()
        for rate in config.rates(rule)
    ]  # fmt: skip
    found = np.array([f["validation"] for f in sweep(asked, "tuning")])
    found = found.reshape(len(FIRST_ORDER), -1)
    tried = np.array([config.rates(rule) for rule in FIRST_ORDER.values()])
    chosen = [float(row[tuning.best(v[None])]) for row, v in zip(tried, found, strict=True)]
    arrays.add("tuning_rate", tried, "first_order", "trial")
    arrays.add("tuning_validation", found, "first_order", "trial")
    arrays.add("rate", chosen, "first_order")
    return chosen


def claims(config: Autoencoder, arrays: Arrays) -> Sequence[Claim]:
    """Return how much sooner natural gradients are where SGD ends."""
    return fig1d_claims.claims(config, arrays)


def departures(config: Autoencoder, arrays: Arrays) -> Sequence[str]:
    """Return what we chose, and where our numbers part from the paper's text."""
    return fig1d_claims.departures(config, arrays)


def draw(config: Autoencoder, arrays: Arrays) -> "Figure":
    """Return test error against examples and against seconds."""
    from natgrad.experiments.blh18.fig1d_picture import picture

    return picture(config, arrays)


EXPERIMENT = register(
    Experiment(
        name="blh18/fig1d",
        title="An autoencoder of MNIST: natural gradients are soon where SGD is after 20 epochs",
        source="[BLH18] Figure 1D",
        presets={
            "smoke": Autoencoder(
                data="digits", hidden=(400, 100, 400), passes=6, first_order_passes=4,
                published_batch=250, default_batch=250, published_passes=4, known_passes=4,
                default_passes=4, every=500, seeds=1, glorot_seeds=1, wall_seeds=1, wall_trial=500,
            ),
            "quick": Autoencoder(
                data="either", examples=20_000, passes=3, first_order_passes=2, published_passes=2,
                known_passes=2, default_passes=2, every=2_000, sgd_rates=(0.02, 0.04),
                momentum_rates=(0.01, 0.02), adam_rates=(1e-3, 2e-3), seeds=1, glorot_seeds=1,
                wall_seeds=1, wall_trial=2_000,
            ),
            "paper": Autoencoder(),
        },
        minutes={"smoke": 0.2, "quick": 2, "paper": 60},
        compute=compute,
        claims=claims,
        draw=draw,
        departures=departures,
    )
)  # fmt: skip
