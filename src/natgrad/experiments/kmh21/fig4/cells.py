"""Cells of Figure 4: the paper's curves, their causes, and further results."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from natgrad.experiments.kmh21._separable import cells
from natgrad.experiments.kmh21._separable.curves import (
    NGD,
    Key,
    curve_arrays,
    curve_cells,
    grid,
    task,
)
from natgrad.experiments.kmh21.fig4 import _variants as variants
from natgrad.experiments.kmh21.fig4.config import Fig4
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep

DEPTH_TIMES = tuple(float(t) for t in np.logspace(-2, 6, 9))


def late_times(config: Fig4) -> tuple[float, ...]:
    """Return the times at which accuracy is recorded up to `late`; `until` is one of them."""
    times = {float(t) for t in np.logspace(0, np.log10(config.late), 37)}
    return tuple(sorted(times | {config.until}))


def gaussian_times(config: Fig4) -> tuple[float, float, float]:
    """Return when flows from Gaussian factors are recorded: early, at `until`, and late."""
    return config.until / 100, config.until, 100 * config.until


def variant_cells(config: Fig4) -> dict[Key, Cell]:
    """Return the cells of the second and third rows, slow ones first."""
    out: dict[Key, Cell] = {}
    scale = dict(zip(config.depths, config.scales, strict=True))
    slow, seeds = range(config.slow_seeds), range(config.seeds)
    for n in sorted(config.observations, reverse=True):
        for alpha in config.gaussian_scales:
            for seed in slow:
                one = task(config, n, seed)
                start = cells.Euclidean(one, 4, alpha, gaussian_times(config), "gaussian")
                name = f"Gaussian, α={alpha:g}, N={n}, {seed}"
                out["gaussian", alpha, n, seed] = Cell(cells.euclidean_flow, start, name)
    for seed in slow:
        few = task(config, config.few, seed)
        for depth in (1, 2, 3, 4):
            deep = variants.Depth(few, depth, scale[depth], DEPTH_TIMES)
            out["depth", depth, seed] = Cell(variants.natural_depth, deep, f"NGD L={depth}, {seed}")
    for seed in seeds:
        few = task(config, config.few, seed)
        for depth in config.depths:
            late = cells.Euclidean(few, depth, scale[depth], late_times(config))
            out["late", depth, seed] = Cell(cells.euclidean_flow, late, f"late L={depth}, {seed}")
        for depth in (2, 3):
            for alpha in config.alphas:
                rich = cells.Euclidean(few, depth, alpha, (1e15,), loss=1 / config.until)
                out["alpha", depth, alpha, seed] = Cell(cells.euclidean_flow, rich, f"α={alpha:g}")
        out["margins", seed] = Cell(cells.margins, cells.Margins(few), f"margins, {seed}")
        for n in up_to_dim(config):
            leap = variants.Overshoot(
                task(config, n, seed), config.overshoot_scales, config.overshoot_step, 2000
            )
            out["overshoot", n, seed] = Cell(variants.overshoot, leap, f"overshoot, N={n}")
        for ratio in config.ratios:
            wide = cells.Task(config.support_n, round(ratio * config.support_n), config.ones, seed)
            out["supports", ratio, seed] = Cell(cells.margins, cells.Margins(wide), f"D/N={ratio}")
    return out


def loop_cells(config: Fig4) -> dict[Key, Cell]:
    """Return the cells that time the paper's loop and check the closed form of the population."""
    out: dict[Key, Cell] = {}
    for depth, scale in zip(config.depths, config.scales, strict=True):
        for n in config.observations:
            given = variants.Loop(task(config, n, 0), depth, scale, 0.5, config.loop_steps)
            out["loop", depth, n] = Cell(variants.loop, given, f"loop L={depth}, N={n}")
    for sample in (0, config.sample):
        short = cells.Population(task(config, config.dim, 0), 1.0, sample, steps=8)
        out["sample", sample] = Cell(cells.natural_population, short, f"population of {sample}")
    return out


def up_to_dim(config: Fig4) -> list[int]:
    """Return the numbers of samples up to D."""
    return [n for n in config.observations if n <= config.dim]


def compute(config: Fig4, sweep: Sweep) -> Arrays:
    """Return the arrays of all panels, from one sweep, so that no core is idle."""
    curves = curve_cells(config, config.path, elsewhere=[config.few])
    asked = loop_cells(config) | variant_cells(config) | curves
    found = dict(zip(asked, sweep(list(asked.values()), "flows and limits"), strict=True))
    now = late_times(config).index(config.until)
    for depth in config.depths:
        for seed in range(config.seeds):
            late = found["late", depth, seed]
            at = {name: late[name][now] for name in ("accuracy", "share", "named")}
            found[f"EGD L={depth}", config.few, seed] = at | {"seconds": late["seconds"]}
    arrays = curve_arrays(
        config,
        found,
        depth=config.depths,
        up_to_n=up_to_dim(config),
        overshoot_scale=config.overshoot_scales,
        gaussian_scale=config.gaussian_scales,
        gaussian_time=gaussian_times(config),
        path_n=config.path,
        slow_seed=list(range(config.slow_seeds)),
        natural_depth=[1, 2, 3, 4],
        depth_time=DEPTH_TIMES,
        late_time=late_times(config),
        alpha=config.alphas,
        alpha_depth=[2, 3],
        ratio=config.ratios,
        limit=["ℓ2 max margin", "ℓ1 max margin", "NGD"],
        population=["closed form", "sample"],
    )
    _variants(config, found, arrays)
    _costs(config, found, arrays)
    return arrays


def _variants(config: Fig4, found: Mapping[Key, Result], arrays: Arrays) -> None:
    """Add the arrays of the second and third rows."""
    seeds, slow = list(range(config.seeds)), list(range(config.slow_seeds))

    def add(name: str, quantity: str, keys: tuple[Any, ...], *dims: str, last: bool = True) -> None:
        arrays.add(name, grid(found, quantity, *keys, last=last)[0], *dims)

    started = (["gaussian"], config.gaussian_scales, config.observations, slow)
    dims = ("gaussian_scale", "n", "slow_seed")
    add("gaussian", "accuracy", started, *dims, "gaussian_time", last=False)
    for quantity in ("stuck", "stuck_speed"):
        add(f"gaussian_{quantity}", quantity, started, *dims)
    for quantity in ("descent", "flow", "spread"):
        keys = (["overshoot"], up_to_dim(config), seeds)
        dims = ("up_to_n", "seed", "overshoot_scale")
        add(f"overshoot_{quantity}", quantity, keys, *dims, last=False)
    late = (["late"], config.depths, seeds)
    add("late", "accuracy", late, "depth", "seed", "late_time", last=False)
    deep = (["depth"], [1, 2, 3, 4], slow)
    add("deep", "accuracy", deep, "natural_depth", "slow_seed", "depth_time", last=False)
    add("deep_error", "error", deep, "natural_depth", "slow_seed", "depth_time", last=False)
    add("deep_pursuit", "pursuit", deep, "natural_depth", "slow_seed")
    alpha = (["alpha"], [2, 3], config.alphas, seeds)
    add("alpha_accuracy", "accuracy", alpha, "alpha_depth", "alpha", "seed")
    for name in ("l1_accuracy", "l2_accuracy"):
        add(name, name, (["margins"], seeds), "seed")
    names = ("l2_supports", "l1_supports", "natural_supports")
    supports = [grid(found, name, ["supports"], config.ratios, seeds)[0] for name in names]
    arrays.add("supports", np.stack(supports) / config.support_n, "limit", "ratio", "seed")
    for quantity in ("path_cosine", "path_basis", "later_basis"):
        add(quantity, quantity, ([NGD], config.path, seeds), "path_n", "seed")


def _costs(config: Fig4, found: Mapping[Key, Result], arrays: Arrays) -> None:
    """Add the cost of the paper's loop, our own cost, and the check of the population."""
    keys = (["loop"], config.depths, config.observations)
    arrays.add("step_seconds", grid(found, "step_seconds", *keys)[0], "depth", "n")
    arrays.add("loop_distance", grid(found, "distance", *keys)[0], "depth", "n")
    twice = {(f"EGD L={depth}", config.few) for depth in config.depths}  # counted as "late"
    spent = [
        float(result["seconds"])
        for key, result in found.items()
        if key[0] != "loop" and key[:2] not in twice and "seconds" in result
    ]
    arrays.add("all_cells_seconds", sum(spent))
    sample = grid(found, "accuracy", ["sample"], [0, config.sample])[0]
    arrays.add("sample_accuracy", sample, "population")
