"""Figures of equations with smooth solutions: many seeds, fixed points."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.figure import Figure

from natgrad.experiments.pinn._solve.cells import Fit, Name, fit
from natgrad.experiments.pinn._solve.presets import Init
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.claim import Claim, over_seeds
from natgrad.lab.experiment import Sweep
from natgrad.lab.figures import PALETTE

__all__ = ["Smooth", "compute", "departures", "draw", "reached"]

_LABELS = {"torch": "torch's", "normal": "0.1·N(0, 1)", "xavier": "Xavier's"}


class Smooth(Protocol):
    """The options that the configs of these figures share."""

    @property
    def seeds(self) -> int: ...
    @property
    def first_seed(self) -> int: ...
    @property
    def inits(self) -> tuple[Init, ...]: ...
    @property
    def width(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def steps(self) -> int: ...


def compute(equation: Name, config: Smooth, sweep: Sweep) -> Arrays:
    """Return error and loss of every fit, and the picture of the first one."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    cells = [
        Cell(
            fit,
            Fit(
                equation=equation,
                widths=(config.width,),
                init=init,
                seed=seed,
                steps=config.steps,
                size=config.size,
                picture=(init, seed) == (config.inits[0], config.first_seed),
            ),
            f"{equation}, {init}, seed {seed}",
        )
        for init in config.inits
        for seed in seeds
    ]
    found = sweep(cells, "fits")
    arrays = Arrays(init=list(config.inits), seed=list(seeds), at=found[0]["step"])
    shape = (len(config.inits), len(seeds))
    errors = np.stack([f["error"] for f in found])
    arrays.add("error", errors.reshape(*shape, -1), "init", "seed", "at")
    arrays.add(
        "loss", np.stack([f["loss"] for f in found]).reshape(*shape, -1), "init", "seed", "step"
    )
    for name in ("seconds", "warned"):
        values = np.array([f[name] for f in found]).reshape(shape)
        arrays.add(name, values, "init", "seed")
    arrays.add("solution", found[0]["solution"], "point")
    return arrays


def reached(config: Smooth, arrays: Arrays, presets: tuple[str, ...]) -> list[Claim]:
    """Return the claims that all of these figures make."""
    final = arrays["error"][..., -1]
    return [
        Claim(
            id="every-start",
            statement=f"every start ends below 1e-5 within {config.steps} steps (worst error)",
            source="natgrad",
            **over_seeds(final, "max"),
            relation="<",
            bound=1e-5,
            presets=presets,
        ),
        Claim(
            id="no-false-alarm",
            statement="the aliasing warning stays silent (number of warnings)",
            source="natgrad",
            value=float(arrays["warned"].sum()),
            n=final.size,
            relation="<=",
            bound=0.0,
            presets=presets,
        ),
    ]


def departures(config: Any, arrays: Arrays) -> Sequence[str]:
    """Return how the fits were made."""
    return [
        "No paper prints this figure. One hidden layer of tanh units, double precision, default "
        "options of GaussNewton; a step is one call of `step`, accepted or not. The seeds were not "
        "used for development, except at the smoke preset.",
    ]


def draw(config: Smooth, arrays: Arrays, title: str) -> Figure:
    """Return errors along the steps, and the distribution of the last ones."""
    figure = Figure(figsize=(9.0, 3.6))
    left, right = figure.subplots(1, 2)
    at = np.array(arrays.coordinates["at"])
    for i, init in enumerate(config.inits):
        color = PALETTE[i]
        for run in arrays["error"][i]:
            left.plot(at, run, color=color, alpha=0.35, linewidth=0.9)
        final = np.sort(arrays["error"][i, :, -1])
        share = np.arange(1, len(final) + 1) / len(final)
        right.step(
            np.concatenate([final[:1], final]),
            np.concatenate([[0.0], share]),
            where="post",
            color=color,
            label=_LABELS[init],
        )
        right.plot(final, share, "o", color=color, markersize=3)
    for axes in (left, right):
        line = axes.axhline if axes is left else axes.axvline
        line(1e-5, color="#6B6B6B", linestyle=(0, (4, 2)), linewidth=1.0)
    left.set(yscale="log", xlabel="step", ylabel="relative L2 error", title="every run")
    right.set(
        xscale="log", xlabel="relative L2 error at the end", ylabel="share of the runs",
        title="initialization", ylim=(0, 1.03),
    )  # fmt: skip
    right.legend(loc="upper left")
    figure.suptitle(title)
    return figure
