"""Figures of equations with sharp fronts: new points every ten steps against fixed points."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from matplotlib.figure import Figure

from natgrad.experiments.pinn._solve.cells import EQUATIONS, Fit, Name, fit
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.claim import Claim, over_seeds
from natgrad.lab.experiment import Sweep
from natgrad.lab.figures import PALETTE

__all__ = ["Sharp", "claims", "compute", "departures", "draw"]

# A fit with fixed points whose last losses are below this has converged. Others stay on a plateau,
# where the residuals are large at the points of the fit too, and nothing is aliased.
_CONVERGED = 1e-4
# Number of those losses: the warning waits for two comparisons, ten steps apart.
_LAST = 20


class Sharp(Protocol):
    """The options that the configs of these figures share."""

    @property
    def seeds(self) -> int: ...
    @property
    def first_seed(self) -> int: ...
    @property
    def widths(self) -> tuple[int, ...]: ...
    @property
    def points(self) -> int: ...
    @property
    def doubled(self) -> tuple[int, ...]: ...
    @property
    def fixed(self) -> int: ...
    @property
    def steps(self) -> int: ...
    @property
    def fixed_steps(self) -> int: ...


def compute(equation: Name, config: Sharp, sweep: Sweep) -> Arrays:
    """Return errors and losses with drawn and with fixed points, and both solutions of one seed."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)

    def cells(drawn: bool) -> list[Cell]:
        return [
            Cell(
                fit,
                Fit(
                    equation=equation,
                    widths=config.widths,
                    init="torch",
                    seed=seed,
                    steps=config.steps if drawn else config.fixed_steps,
                    size=config.points if drawn else config.fixed,
                    drawn=drawn,
                    doubled=config.doubled if drawn else (),
                    picture=seed == config.first_seed,
                ),
                f"{equation}, {'drawn' if drawn else 'fixed'} points, seed {seed}",
            )
            for seed in seeds
        ]

    judged = EQUATIONS[equation]()
    arrays = Arrays(seed=list(seeds), coordinate=[0, 1])
    arrays.add("judged", judged.judged().numpy(), "point", "coordinate")
    arrays.add("truth", judged.truth(judged.judged()).numpy(), "point")
    for name, drawn in (("drawn", True), ("fixed", False)):
        found = sweep(cells(drawn), f"{name} points")
        arrays.add(f"{name}_at", found[0]["step"], f"{name}_at")
        arrays.add(f"{name}_error", np.stack([f["error"] for f in found]), "seed", f"{name}_at")
        arrays.add(f"{name}_loss", np.stack([f["loss"] for f in found]), "seed", f"{name}_step")
        arrays.add(f"{name}_warned", np.array([f["warned"] for f in found]), "seed")
        arrays.add(f"{name}_seconds", np.array([f["seconds"] for f in found]), "seed")
        arrays.add(f"{name}_solution", found[0]["solution"], "point")
    return arrays


def claims(
    config: Sharp, arrays: Arrays, bound: float, presets: tuple[str, ...]
) -> Sequence[Claim]:
    """Return the claims about drawn and fixed points."""
    converged = _converged(arrays)
    silent = converged & ~arrays["fixed_warned"].astype(bool)
    return [
        Claim(
            id="drawn",
            statement=f"with points drawn anew every ten steps all seeds end below {bound:g} "
            "(worst error)",
            source="natgrad",
            **over_seeds(arrays["drawn_error"][:, -1], "max"),
            relation="<",
            bound=bound,
            presets=presets,
        ),
        Claim(
            id="alarm",
            statement=f"every fit on fixed points whose last {_LAST} losses are below "
            f"{_CONVERGED:g} gives the aliasing warning (number of silent fits; all fits if none "
            "converges)",
            source="natgrad",
            value=float(silent.sum() if converged.any() else silent.size),
            n=int(converged.sum()),
            relation="<=",
            bound=0.0,
            presets=presets,
        ),
    ]


def _converged(arrays: Arrays) -> np.ndarray:
    """Return, by seed, whether the fit on fixed points satisfies the equation at its points."""
    return np.asarray(arrays["fixed_loss"][:, -_LAST:].max(1) < _CONVERGED)


def departures(config: Any, arrays: Arrays) -> Sequence[str]:
    """Return how the fits were made."""
    converged = _converged(arrays)
    return [
        "No paper prints this figure. tanh layers in double precision, default options of "
        "GaussNewton. Side conditions hold by construction, so the residual inside is the only "
        f"block. With fixed points {int(converged.sum())} of {converged.size} fits have a loss "
        f"below {_CONVERGED:g} in the last {_LAST} steps; `alarm` does not judge the others.",
    ]


def draw(config: Sharp, arrays: Arrays, title: str) -> Figure:
    """Return errors, training losses, and the last profile of both fits."""
    figure = Figure(figsize=(10.5, 3.4))
    left, middle, right = figure.subplots(1, 3)
    for name, color in (("drawn", PALETTE[0]), ("fixed", PALETTE[1])):
        at = arrays[f"{name}_at"]
        for i, run in enumerate(arrays[f"{name}_error"]):
            left.plot(at, run, color=color, label=f"{name} points" if i == 0 else None)
        for run in arrays[f"{name}_loss"]:
            middle.plot(np.arange(1, len(run) + 1), run, color=color, linewidth=0.9)
    left.set(yscale="log", xlabel="step", ylabel="relative L2 error", title="error")
    middle.set(yscale="log", xlabel="step", ylabel="loss", title="loss on the points of the fit")
    left.legend(loc="upper right", bbox_to_anchor=(1.0, 0.78))  # between both groups of lines
    last = arrays["judged"][:, 1] == arrays["judged"][:, 1].max()
    place = arrays["judged"][last, 0]
    right.plot(place, arrays["truth"][last], color="black", linewidth=2.6, label="truth")
    for name, color in (("fixed", PALETTE[1]), ("drawn", PALETTE[0])):
        right.plot(place, arrays[f"{name}_solution"][last], color=color, linewidth=1.1)
    right.set(xlabel="x", ylabel="u", title="solution at the final time")
    right.legend(loc="best")
    figure.suptitle(title)
    return figure
