"""Cells of Figure 6: the curves of Figure 4, Gaussian starts, and a check of the population."""

from natgrad.experiments.kmh21._separable import cells
from natgrad.experiments.kmh21._separable.curves import (
    NGD,
    Key,
    curve_arrays,
    curve_cells,
    grid,
    task,
)
from natgrad.experiments.kmh21.fig6.config import Fig6
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.experiment import Sweep


def compute(config: Fig6, sweep: Sweep) -> Arrays:
    """Return the arrays of all panels."""
    asked: dict[Key, Cell] = {}
    few = range(config.slow_seeds)
    for n in config.sampled:
        for seed in few:
            given = cells.Population(task(config, n, seed), 100.0, config.sample)
            asked["sample", n, seed] = Cell(cells.natural_population, given, f"sample, N={n}")
            closed = cells.Population(task(config, n, seed), 100.0)
            asked["closed", n, seed] = Cell(cells.natural_population, closed, f"closed, N={n}")
    for n in sorted(config.observations, reverse=True):
        for scale in config.gaussian_scales:
            for seed in range(config.gaussian_seeds):
                start = cells.Euclidean(
                    task(config, n, seed), 5, scale, (config.until,), "gaussian"
                )
                label = f"Gaussian start {scale:g}, N={n}, seed {seed}"
                asked["gaussian", scale, n, seed] = Cell(cells.euclidean_flow, start, label)
    asked |= curve_cells(config, [n for n in config.observations if n > config.dim])
    found = dict(zip(asked, sweep(list(asked.values()), "flows and limits"), strict=True))
    path = [n for n in config.observations if n > config.dim]
    arrays = curve_arrays(
        config,
        found,
        sampled_n=config.sampled,
        slow_seed=list(few),
        path_n=path,
        gaussian_scale=config.gaussian_scales,
        gaussian_seed=list(range(config.gaussian_seeds)),
    )
    seeds, dims = list(range(config.seeds)), ("sampled_n", "slow_seed")
    for name in ("sample", "closed"):
        values = grid(found, "accuracy", [name], config.sampled, few)[0]
        arrays.add(f"{name}_accuracy", values, *dims)
    started = (config.gaussian_scales, config.observations, list(range(config.gaussian_seeds)))
    gaussian = grid(found, "accuracy", ["gaussian"], *started)[0]
    arrays.add("gaussian", gaussian, "gaussian_scale", "n", "gaussian_seed")
    for quantity in ("path_cosine", "later_basis"):
        arrays.add(quantity, grid(found, quantity, [NGD], path, seeds)[0], "path_n", "seed")
    return arrays
