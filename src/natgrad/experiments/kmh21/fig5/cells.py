"""Cells of Figure 5, panel by panel."""

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from natgrad.experiments.kmh21._completion import cells
from natgrad.experiments.kmh21.fig5 import _further as further
from natgrad.experiments.kmh21.fig5.config import Fig5
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep

GRID_ERROR = 1e-4
"""Training error at which the search stops; its smallest steps would take hours to 1e-6."""


class Panels:
    """Cells of several panels for one sweep, and their results as arrays with named axes."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self._places: dict[str, tuple[tuple[str, ...], tuple[int, ...], slice]] = {}
        self._inner: dict[str, tuple[str, ...]] = {}

    def add(
        self,
        name: str,
        axes: Mapping[str, Sequence[Any]],
        make: Callable[..., tuple[Any, Any]],
        **inner: tuple[str, ...],
    ) -> None:
        """Add the cells of all combinations of the axes' values.

        Args:
            name: Name of the panel.
            axes: Values by axis.
            make: Returns function and config of the cell for one combination.
            inner: Axes of the arrays that a cell returns, by key; results without an entry are
                numbers.
        """
        begin = len(self.cells)
        for values in product(*axes.values()):
            function, config = make(*values)
            label = ", ".join(f"{axis} {value}" for axis, value in zip(axes, values, strict=True))
            self.cells.append(Cell(function, config, f"{name}: {label}"))
        shape = tuple(len(values) for values in axes.values())
        self._places[name] = (tuple(axes), shape, slice(begin, len(self.cells)))
        self._inner |= {f"{name}_{key}": dims for key, dims in inner.items()}

    def collect(self, results: Sequence[Result], arrays: Arrays) -> None:
        """Add `name_key` for every key of every panel's results."""
        for name, (dims, shape, place) in self._places.items():
            mine = results[place]
            for key in mine[0]:
                values = np.stack([result[key] for result in mine])
                whole = f"{name}_{key}"
                inner = self._inner.get(whole, ())
                arrays.add(whole, values.reshape(shape + values.shape[1:]), *dims, *inner)


def compute(config: Fig5, sweep: Sweep) -> Arrays:
    """Return errors and ranks of all methods on all problems."""
    panels = Panels()
    _main(panels, config)
    _natural(panels, config)
    _further(panels, config)
    results = sweep(panels.cells, "matrix completion")
    arrays = Arrays(
        n=config.observed,
        depth=config.depths,
        scale=config.scales,
        seed=range(config.seeds),
        natural_depth=config.natural_depths,
        share_start=["Gaussian", "orthogonal"],
        sample_seed=range(config.sample_seeds),
        collapsed=[f"L = {a}, init from L = {b}" for a, b in config.collapsed],
        few_n=config.few_observed,
        collapsed_seed=range(config.collapsed_seeds),
        dynamics_depth=[1, *config.depths],
        grid_depth=[2, 3],
        grid_scale=config.grid_scales,
        grid_step=config.grid_steps,
        damping=config.grid_dampings,
        grid_seed=range(config.grid_seeds),
        product_depth=config.product_depths,
        race=[f"L={a}, α={b:g}, N={c}" for a, b, c in config.race],
    )
    panels.collect(results, arrays)
    return arrays


def problem(config: Fig5, n: int, seed: int) -> cells.Task:
    """Return a problem of the main panels."""
    return cells.Task(size=config.size, rank=config.rank, observed=n, seed=seed)


def grid_problem(config: Fig5, seed: int) -> cells.Task:
    """Return a problem of the search."""
    return cells.Task(size=config.grid_size, rank=2, observed=config.grid_observed, seed=seed)


def _main(panels: Panels, config: Fig5) -> None:
    """Add EGD, slowest cells first, and the baselines."""
    seeds, scale = range(config.seeds), config.scales[0]

    def egd(depth: int, alpha: float, n: int, seed: int) -> tuple[Any, Any]:
        return cells.euclidean, cells.EuclideanConfig(
            task=problem(config, n, seed),
            depth=depth,
            scale=alpha,
            max_evaluations=config.max_evaluations,
        )

    def race(index: int) -> tuple[Any, Any]:
        depth, alpha, n = config.race[index]
        return further.race, further.RaceConfig(cell=egd(depth, alpha, n, 0)[1])

    def uv(n: int, seed: int) -> tuple[Any, Any]:
        return cells.euclidean, cells.EuclideanConfig(
            task=problem(config, n, seed),
            depth=2,
            scale=scale,
            hidden=config.rank,
            max_evaluations=config.max_evaluations,
        )

    panels.add("race", {"race": range(len(config.race))}, race)
    axes = {"depth": config.depths, "scale": config.scales, "n": config.observed, "seed": seeds}
    panels.add("egd", axes, egd)
    problems = {"n": config.observed, "seed": seeds}
    panels.add("uv", problems, uv)
    panels.add(
        "direct",
        problems,
        lambda n, seed: (
            cells.direct,
            cells.EuclideanConfig(task=problem(config, n, seed), depth=1, scale=scale),
        ),
    )
    panels.add(
        "nuclear",
        problems,
        lambda n, seed: (cells.nuclear, cells.NuclearConfig(task=problem(config, n, seed))),
    )


def _natural(panels: Panels, config: Fig5) -> None:
    """Add NGD: over all entries, with equal shares or minimum norm, and over the observed ones."""
    depths, scale = config.natural_depths, config.scales[0]

    def all_entries(depth: int, n: int, seed: int) -> tuple[Any, Any]:
        task = problem(config, n, seed)
        return cells.natural_all, cells.NaturalConfig(task=task, depth=depth, scale=scale)

    def shared(start: str, depth: int, n: int, seed: int) -> tuple[Any, Any]:
        orthogonal = start == "orthogonal"
        return cells.natural_all, cells.NaturalConfig(
            task=problem(config, n, seed),
            depth=depth,
            scale=config.size / 10 if orthogonal else scale,
            selection="equal_share",
            orthogonal=orthogonal,
        )

    def sample(depth: int, n: int, seed: int) -> tuple[Any, Any]:
        task = problem(config, n, seed)
        return cells.gauss_newton, cells.GaussNewtonConfig(task=task, depth=depth, scale=scale)

    def flow(depth: int, seed: int) -> tuple[Any, Any]:
        size = config.flow_size
        task = cells.Task(size=size, rank=2, observed=size * size // 5, seed=seed)
        return cells.natural_flow, cells.NaturalFlowConfig(task=task, depth=depth, scale=0.1)

    problems = {"natural_depth": depths, "n": config.observed, "seed": range(config.seeds)}
    panels.add("ngd", problems, all_entries)
    few = {"natural_depth": depths, "few_n": config.few_observed}
    starts = {"share_start": ["Gaussian", "orthogonal"]}
    panels.add("share", {**starts, **few, "seed": range(config.seeds)}, shared)
    panels.add("sample", {**few, "sample_seed": range(config.sample_seeds)}, sample)
    panels.add("flow", {"natural_depth": depths, "sample_seed": range(config.sample_seeds)}, flow)


def _further(panels: Panels, config: Fig5) -> None:
    """Add the panels on initialization, dynamics, damping and random products."""
    scale = config.scales[0]

    def start(index: int, n: int, seed: int) -> tuple[Any, Any]:
        depth, source = config.collapsed[index]
        return cells.euclidean, cells.EuclideanConfig(
            task=problem(config, n, seed),
            depth=depth,
            scale=scale,
            from_depth=source,
            max_evaluations=config.max_evaluations,
        )

    def dynamics(depth: int) -> tuple[Any, Any]:
        return further.dynamics, further.DynamicsConfig(
            task=problem(config, config.dynamics_observed, 0), depth=depth, scale=scale
        )

    def damped(depth: int, alpha: float, step: float, damping: float, seed: int) -> tuple[Any, Any]:
        return further.damped, further.GridConfig(
            task=grid_problem(config, seed),
            depth=depth,
            scale=alpha,
            step=step,
            damping=damping,
            train_error=GRID_ERROR,
        )

    def undamped_limit(depth: int, alpha: float, seed: int) -> tuple[Any, Any]:
        return cells.euclidean, cells.EuclideanConfig(
            task=grid_problem(config, seed), depth=depth, scale=alpha, train_error=GRID_ERROR
        )

    panels.add(
        "init",
        {
            "collapsed": range(len(config.collapsed)),
            "few_n": config.few_observed,
            "collapsed_seed": range(config.collapsed_seeds),
        },
        start,
    )
    panels.add(
        "dynamics",
        {"dynamics_depth": [1, *config.depths]},
        dynamics,
        times=("point",),
        values=("point", "value"),
        truth=("value",),
    )
    grid: dict[str, Sequence[Any]] = {"grid_depth": [2, 3], "grid_scale": config.grid_scales}
    searched = {"grid_step": config.grid_steps, "damping": config.grid_dampings}
    seeds = {"grid_seed": range(config.grid_seeds)}
    panels.add("grid", {**grid, **searched, **seeds}, damped)
    panels.add("grid_egd", {**grid, **seeds}, undamped_limit)
    panels.add(
        "products",
        {"seed": range(config.seeds)},
        lambda seed: (
            further.products,
            further.ProductsConfig(size=config.size, depths=config.product_depths, seed=seed),
        ),
        rank=("product_depth",),
    )
