"""Cells of natural flow with damping λ₀Lᵃ: all flows of one data set, and where they end."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from natgrad.data.separable import sparse_gaussian
from natgrad.experiments.atlas._flows.directions import damped_natural, pull
from natgrad.experiments.atlas._flows.ends import degrees, face, tight
from natgrad.experiments.atlas.damping.config import Damping
from natgrad.flows._by_length import Vector, arc_path
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.limits import max_margin, natural_flow

EARLY = 300.0  # a length at which the gradient's direction c has settled for a = 2
SAVED = 31
MOST = 40_000  # evaluations after which a flow is undecided
KEYS = ("to_margin", "to_vertex", "to_face", "to_predicted", "tight", "next", "support")


def compute(config: Damping, sweep: Sweep) -> Arrays:
    """Return, for every data set, λ₀ and a, the kind of the end and how near the path is to it."""
    size = (config.n, config.dim, config.ones, config.scales, config.powers, config.length)
    found = sweep([Cell(flows, Flows(*size, s), f"data {s}") for s in config.seeds], "flows")
    arrays = Arrays(
        seed=config.seeds, scale=config.scales, power=config.powers, saved=list(range(SAVED))
    )
    for key in KEYS:
        arrays.add(key, np.stack([f[key] for f in found]), "seed", "scale", "power")
    arrays.add("along", found[0]["along"], "scale", "power", "saved")
    arrays.add("lengths", np.logspace(0, np.log10(config.length), SAVED), "saved")
    return arrays


@dataclass(frozen=True)
class Flows:
    """The flows of one data set, for all λ₀ and a."""

    n: int
    dim: int
    ones: int
    scales: tuple[float, ...]
    powers: tuple[float, ...]
    length: float
    seed: int


def flows(config: Flows) -> Result:
    """Return the ends of all flows.

    `to_margin`, `to_vertex`, `to_face` and `to_predicted` are degrees to the ℓ2 max margin, to the
    vertex of undamped flow, to X_T⁺1 with the tight rows T, and to the vertex of the linear program
    whose cost is the gradient at length `EARLY`. `tight` counts T, `next` is the smallest margin
    outside it over the smallest, `support` the share of the ℓ2 support vectors that are in T.
    """
    task = sparse_gaussian(config.n, config.dim, ones=config.ones, seed=config.seed)
    rows: Vector = (task.y[:, None] * task.x).numpy()
    best = max_margin(task.x, task.y)
    vertex = natural_flow(task.x, task.y).solution.numpy()
    margin = best.solution.numpy()
    support = tight(rows, margin, 1e-7)
    lengths = np.logspace(0, np.log10(config.length), SAVED)
    asked = np.unique(np.append(lengths, EARLY))
    shape = (len(config.scales), len(config.powers))
    out: dict[str, Any] = {key: np.full(shape, np.nan) for key in KEYS}
    out["along"] = np.full((*shape, SAVED), np.nan)
    for place in np.ndindex(shape):
        velocity = damped_natural(rows, config.scales[place[0]], config.powers[place[1]])
        path = arc_path(velocity, np.zeros(config.dim), asked.tolist(), max_evaluations=MOST).points
        end, early = path[-1], path[int(np.searchsorted(asked, EARLY))]
        if not np.isfinite(end).all():
            continue
        ends = tight(rows, end)
        outside = (rows @ end)[~ends] / (rows @ end).min()
        out["to_margin"][place] = degrees(end, margin)
        out["to_vertex"][place] = degrees(end, vertex)
        out["to_face"][place] = degrees(end, face(rows, ends))
        out["to_predicted"][place] = degrees(end, _vertex(rows, pull(rows, rows @ early)))
        out["tight"][place] = ends.sum()
        out["next"][place] = outside.min() if len(outside) else np.inf
        out["support"][place] = ends[support].mean()
        at = np.isin(asked, lengths)
        out["along"][place] = [degrees(b, margin) for b in path[at]]
    return out


def _vertex(rows: Vector, cost: Vector) -> Vector:
    """Return the solution of min c·b subject to X̃b ≥ 1."""
    c = cost / np.abs(cost).max()
    ones = np.ones(len(rows))
    found = linprog(c, A_ub=-rows, b_ub=-ones, bounds=(None, None), method="highs")
    return found.x if found.x is not None else np.full(rows.shape[1], np.nan)
