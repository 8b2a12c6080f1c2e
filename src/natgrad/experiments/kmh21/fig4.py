"""[KMH21] Figure 4: sparse classification with D = 1000, and why the paper's curves look so."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21 import separable_cells as cells
from natgrad.experiments.kmh21 import separable_variants as variants
from natgrad.experiments.kmh21.fig4_claims import claims
from natgrad.experiments.kmh21.fig4_departures import departures
from natgrad.experiments.kmh21.separable_curves import (
    NGD,
    Key,
    curve_arrays,
    curve_cells,
    grid,
    task,
)
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Experiment, Sweep
from natgrad.lab.registry import register

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, kw_only=True)
class Fig4:
    """Sparse separators, EGD at several depths and NGD, against the number of data."""

    dim: int = 1000
    """Number of features D."""
    ones: int = 20
    """Ones in the true separator; its other coefficients are zero."""
    observations: tuple[int, ...] = (250, 500, 750, 1000, 1250, 1500, 2000, 2500)
    """Numbers of data N; D must be among them."""
    depths: tuple[int, ...] = (1, 2, 3, 4)
    """Depths L of EGD; 1, 2, 3 and 4 must be among them."""
    scales: tuple[float, ...] = (0.1, 0.1, 0.1, 0.2)
    """Initial value, for each depth, of all factors but the first, which is zero. Our choice."""
    until: float = 1e6
    """Final time on the mean loss: the paper's 2 million steps, were they of length ½."""
    seeds: int = 10
    """Number of data sets."""
    few: int = 500
    """N < D of the panels on logits, stopping time, depth and the scale of constant starts."""
    path: tuple[int, ...] = (1250, 1500, 2000, 2500)
    """N > D at which natural flow is followed from t = 0 and compared with the linear program."""
    slow_seeds: int = 5
    """Data sets for the slower variants: Gaussian starts, and NGD in depth."""
    gaussian_scales: tuple[float, ...] = (0.1, 0.3, 1.0)
    """Standard deviations of the factors at the start of EGD at L = 4, at every N."""
    overshoot_scales: tuple[float, ...] = (0.01, 0.03, 0.1, 0.2, 0.3, 1.0)
    """Standard deviations of β at the start of NGD with Euler steps, at every N ≤ D; claims are
    made at 0.03, at 0.1 and from 0.2 on."""
    overshoot_step: float = 0.1
    """Length of those steps."""
    late: float = 1e12
    """Final time of the panel on stopping."""
    alphas: tuple[float, ...] = (1e-2, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
    """Initial scales of the panel on kernel and rich regimes."""
    support_n: int = 100
    """N of the panel on support vectors."""
    ratios: tuple[float, ...] = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0)
    """D/N of that panel."""
    sample: int = 10_000
    """Unlabelled inputs that stand for the population in a check of its closed form."""
    loop_steps: int = 300
    """Steps of the paper's loop that are timed, for each depth and N."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave a claim without a number."""
        needed = {self.dim, self.few, *self.path}
        if not needed <= set(self.observations):
            raise InvalidInputError(
                f"observations must contain dim, few and path, at which claims are made "
                f"({sorted(needed)}), but are {self.observations}."
            )
        if not (self.few < self.dim and self.path and min(self.path) > self.dim):
            raise InvalidInputError(
                f"few must be below dim and path above it, but few = {self.few}, path = "
                f"{self.path}, dim = {self.dim}."
            )
        if not {0.03, 0.1, 0.3} <= set(self.overshoot_scales) or not self.gaussian_scales:
            raise InvalidInputError(
                "overshoot_scales must contain 0.03, 0.1 and 0.3, and gaussian_scales one number, "
                f"but got {self.overshoot_scales} and {self.gaussian_scales}."
            )
        if not 1 <= self.until <= self.late:
            raise InvalidInputError(
                f"until must lie between 1 and late, but until = {self.until:g} and "
                f"late = {self.late:g}."
            )
        if len(self.scales) != len(self.depths) or not {1, 2, 3, 4} <= set(self.depths):
            raise InvalidInputError(
                "depths must contain 1 to 4 and scales have one number for each, but got "
                f"{self.depths} and {self.scales}."
            )
        if self.slow_seeds > self.seeds or max(self.ratios, default=0) <= 1:
            raise InvalidInputError(
                f"slow_seeds must be at most seeds and one of ratios above 1, but slow_seeds = "
                f"{self.slow_seeds}, seeds = {self.seeds}, ratios = {self.ratios}."
            )


DEPTH_TIMES = tuple(float(t) for t in np.logspace(-2, 6, 9))


def late_times(config: Fig4) -> tuple[float, ...]:
    """Return the times at which accuracy is looked at on the way to `late`; `until` is one."""
    times = {float(t) for t in np.logspace(0, np.log10(config.late), 37)}
    return tuple(sorted(times | {config.until}))


def gaussian_times(config: Fig4) -> tuple[float, float, float]:
    """Return when flows from Gaussian factors are looked at: early, at `until`, and late."""
    return config.until / 100, config.until, 100 * config.until


def variant_cells(config: Fig4) -> dict[Key, Cell]:
    """Return the cells of the second and third rows; slow ones first."""
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
    """Return the cells that time the paper's loop, and that check the population's closed form."""
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
    """Return the numbers of data up to D."""
    return [n for n in config.observations if n <= config.dim]


def compute(config: Fig4, sweep: Sweep) -> Arrays:
    """Return all panels' arrays; one sweep for all, so that no core waits."""
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
    """Add what the paper's loop would cost, what we spent, and the check of the population."""
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


def draw(config: Fig4, arrays: Arrays) -> "Figure":
    """Return three rows: the paper's figure, what explains it, what lies beyond."""
    from natgrad.experiments.kmh21.fig4_picture import picture

    return picture(config, arrays)


_QUICK = Fig4(
    observations=(250, 500, 1000, 1500, 2500),
    seeds=3,
    path=(1500,),
    slow_seeds=1,
    overshoot_scales=(0.03, 0.1, 0.2, 0.3, 1.0),
    alphas=(1e-2, 0.1, 0.3, 1.0, 3.0),
    ratios=(0.5, 1.0, 1.5, 2.0, 4.0, 6.0, 10.0),
    loop_steps=50,
)
_SMOKE = Fig4(
    dim=60,
    ones=4,
    observations=(40, 60, 90),
    seeds=2,
    few=40,
    path=(90,),
    slow_seeds=1,
    gaussian_scales=(0.1, 1.0),
    overshoot_scales=(0.03, 0.1, 0.3),
    late=1e4,
    until=1e3,
    alphas=(0.1, 1.0),
    support_n=20,
    ratios=(0.5, 1.0, 4.0),
    sample=2000,
    loop_steps=20,
)

EXPERIMENT = register(
    Experiment(
        name="kmh21/fig4",
        title="Depth lets EGD generalise from few data; NGD interpolates and dips at N = D",
        source="[KMH21] Figure 4",
        presets={"smoke": _SMOKE, "quick": _QUICK, "paper": Fig4()},
        minutes={"smoke": 0.2, "quick": 2, "paper": 12},
        compute=compute,
        claims=claims,
        draw=draw,
        departures=departures,
    )
)
