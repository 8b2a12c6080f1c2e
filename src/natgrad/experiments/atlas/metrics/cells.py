"""Cells of flows under other metrics: all flows of one data set, and where they end."""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from natgrad.data.separable import sparse_gaussian
from natgrad.experiments.atlas._flows.classes import ClassKfac
from natgrad.experiments.atlas._flows.directions import (
    log_fisher,
    log_pull,
    mean_natural,
    metric_natural,
    pull,
    scaled,
)
from natgrad.experiments.atlas._flows.ends import degrees, metric_margin, tight
from natgrad.experiments.atlas.metrics.config import Metrics
from natgrad.flows._by_length import Vector, Velocity, arc_path
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.limits import natural_flow

LENGTHS = 61
MOST = 40_000  # evaluations after which a flow is undecided
MOST_BEHIND = 15_000
ONES = 4
_NODES = np.polynomial.legendre.leggauss(80)


def compute(config: Metrics, sweep: Sweep) -> Arrays:
    """Return the ends of every flow on every data set."""
    one = replace(config, seeds=())
    found = sweep([Cell(flows, Flows(one, s), f"data {s}") for s in config.seeds], "flows")
    arrays = Arrays(
        seed=config.seeds,
        kappa=config.kappas,
        mean=config.means,
        wide_kappa=config.wide_kappas,
        length=np.logspace(0, np.log10(config.length), LENGTHS),
    )
    plain = ("kfac", "class_kfac", "class_undamped", "diagonal", "frozen", "exponent", "constant")
    for key in plain:
        arrays.add(key, np.stack([f[key] for f in found]), "seed")
    for key in ("to_whitened", "to_vertex", "tight"):
        arrays.add(key, np.stack([f[key] for f in found]), "seed", "kappa")
    for key in ("to_ray", "slope"):
        arrays.add(key, np.stack([f[key] for f in found]), "seed", "mean")
    for key in ("to_interpolant", "to_single"):
        arrays.add(key, np.stack([f[key] for f in found]), "seed", "wide_kappa")
    for key in ("turned", "expected_turn"):
        arrays.add(key, np.stack([f[key] for f in found]), "seed", "length")
    return arrays


@dataclass(frozen=True)
class Flows:
    """All flows of one data set."""

    sizes: Metrics
    seed: int


def flows(config: Flows) -> Result:
    """Return where K-FAC, the diagonal and population Fisher, and Wasserstein metrics end."""
    sizes = config.sizes
    task = sparse_gaussian(sizes.n, sizes.dim, ones=ONES, seed=config.seed)
    scales = np.logspace(-0.5, 0.5, sizes.dim)
    y = task.y.numpy()[:, None]
    rows, plain = y * task.x.numpy() * scales, y * task.x.numpy()
    out = {
        **_binary(rows, sizes),
        **_several(sizes, config.seed),
        **_population(plain, sizes.length),
        **_wasserstein(rows, sizes),
        **_behind(rows, sizes),
        **_wide(sizes, config.seed),
    }
    return {name: np.asarray(value) for name, value in out.items()}


def _end(velocity: Velocity, dim: int, length: float) -> Vector:
    found: Vector = arc_path(velocity, np.zeros(dim), [length]).points[0]
    return found


def _binary(rows: Vector, sizes: Metrics) -> dict[str, Any]:
    """Return degrees of K-FAC and of the diagonal Fisher to the margins in their own norms."""
    n, d = rows.shape
    metric = rows.T @ rows / n + sizes.damping * np.eye(d)
    end = _end(lambda b: np.linalg.solve(metric, pull(rows, rows @ b)), d, sizes.length)
    squares = rows**2

    def diagonal(b: Vector) -> Vector:
        return scaled(log_fisher(rows @ b)) @ squares

    own = _end(lambda b: pull(rows, rows @ b) / diagonal(b), d, sizes.length)
    fixed = metric_margin(rows, np.diag(diagonal(own)))
    return {
        "kfac": degrees(end, metric_margin(rows, metric).solution.numpy()),
        "diagonal": degrees(own, fixed.solution.numpy()),
    }


def _several(sizes: Metrics, seed: int) -> dict[str, Any]:
    """Return degrees of K-FAC of several classes to the margins in its norms.

    With both factors damped, G + μ tends to μ and the norm is that of A + λ in each class. With G
    not damped, the norm is tr(BᵀAB G) with G at the end; where G has no limit (its condition number
    still changes), the angle is NaN: undecided.
    """
    source = np.random.default_rng(seed)
    d, more = sizes.dim // 2, sizes.classes - 1
    x = source.standard_normal((sizes.n, d)) * np.logspace(-0.4, 0.4, d)
    labels = (x @ source.standard_normal((d, sizes.classes))).argmax(1)
    damped = ClassKfac(x, labels, sizes.damping, sizes.damping)
    end = _end(damped.velocity(), d * more, sizes.length)
    fixed = metric_margin(damped.rows, np.kron(damped.metric, np.eye(more)))
    flow, undecided = ClassKfac(x, labels, sizes.damping), np.nan
    lengths = [sizes.length / 10, sizes.length]
    before, after = arc_path(
        flow.velocity(), np.zeros(d * more), lengths, max_evaluations=MOST
    ).points
    if np.isfinite(after).all():
        early, late = (flow.factor(b) for b in (before, after))
        ratio = np.linalg.cond(late) / np.linalg.cond(early)
        if abs(np.log(ratio)) < 0.01:
            metric = np.kron(flow.metric, late / np.trace(late))
            undecided = degrees(after, metric_margin(flow.rows, metric).solution.numpy())
    return {
        "class_kfac": degrees(end, fixed.solution.numpy()),
        "class_undamped": undecided,
    }


def population_weights(r: float) -> tuple[float, float]:
    """Return E φ′(rz) and E φ′(rz)z² for standard normal z: the population Fisher across and along.

    Example:
        >>> across, along = population_weights(1e3)
        >>> round(along / across * 1e6, 2)  # π²/3
        3.29
    """
    top = min(40.0, 9 * r)
    s = (_NODES[0] + 1) * top / 2
    density = np.exp(log_fisher(s) - (s / r) ** 2 / 2) * _NODES[1]
    return float(density.sum()), float((density * (s / r) ** 2).sum())


def _population(rows: Vector, length: float) -> dict[str, Any]:
    """Return how far the flow of the population Fisher turns, against its law.

    `turned` is dθ/dr, `expected_turn` (π²/3) r⁻³ tan∠(−∇L, β); `exponent` and `constant` are fitted
    to dθ/dr / tan over r from 30 on.
    """

    def split(b: Vector) -> tuple[Vector, Vector, float]:
        g, r = pull(rows, rows @ b), float(np.linalg.norm(b))
        along = (g @ b / r) * (b / r) if r > 0 else 0 * g
        return along, g - along, r

    def velocity(b: Vector) -> Vector:
        along, across, r = split(b)
        if r < 1e-9:
            return across
        weights = population_weights(r)
        return across * weights[1] / weights[0] + along

    lengths = np.logspace(0, np.log10(length), LENGTHS)
    path = arc_path(velocity, np.zeros(rows.shape[1]), lengths.tolist(), rtol=1e-10).points
    turned, expected, radii, slopes = [], [], [], []
    for b in path:
        along, across, r = split(b)
        v = velocity(b)
        radial = v @ b / r
        turned.append(float(np.linalg.norm(v - radial * b / r) / radial / r))
        slopes.append(float(np.linalg.norm(across) / np.linalg.norm(along)))
        expected.append(np.pi**2 / 3 * r**-3 * slopes[-1])
        radii.append(r)
    late = np.array(radii) > 30
    logs = np.log(np.array(turned) / np.array(slopes))[late]
    slope, level = np.polyfit(np.log(np.array(radii)[late]), logs, 1)
    margin = metric_margin(rows, np.eye(rows.shape[1])).solution.numpy()
    return {
        "frozen": degrees(path[-1], margin),
        "exponent": slope,
        "constant": np.exp(level),
        "turned": turned,
        "expected_turn": expected,
    }


def _wasserstein(rows: Vector, sizes: Metrics) -> dict[str, Any]:
    """Return where the metric (p(1 − p))^κ ends with more samples than features."""
    x = torch.from_numpy(rows)
    vertex = natural_flow(x, torch.ones(len(x), dtype=x.dtype)).solution.numpy()
    whitened = metric_margin(rows, rows.T @ rows / len(rows)).solution.numpy()
    out: dict[str, Any] = {"to_whitened": [], "to_vertex": [], "tight": []}
    for kappa in sizes.kappas:
        end = _end(metric_natural(rows, kappa), rows.shape[1], sizes.length)
        out["to_whitened"].append(degrees(end, whitened))
        out["to_vertex"].append(degrees(end, vertex))
        out["tight"].append(tight(rows, end).sum())
    return out


def ray(rows: Vector, b: Vector) -> tuple[Vector, float]:
    """Return the direction orthogonal to the D − 1 rows of smallest margins, and its least slope.

    The slope is the smallest cosine between the direction and the other rows. Is it positive, then
    nothing stops a flow along the ray.

    Example:
        >>> w, slope = ray(np.array([[1.0, 0.0], [3.0, 4.0]]), np.array([1.0, 9.0]))
        >>> w.tolist(), slope
        ([0.0, 1.0], 0.8)
    """
    order = np.argsort(rows @ b)
    behind, others = np.split(order, [rows.shape[1] - 1])
    w = np.linalg.svd(rows[behind])[2][-1]
    slopes = rows[others] @ w / np.linalg.norm(rows[others], axis=1)
    if w @ b < 0:
        w, slopes = -w, -slopes
    return w, float(slopes.min())


def _behind(rows: Vector, sizes: Metrics) -> dict[str, Any]:
    """Return degrees of Wasserstein flows to their rays, and the least slopes along these.

    An angle is NaN, undecided, where the path does not reach its length.
    """
    out: dict[str, Any] = {"to_ray": [], "slope": []}
    lengths = np.logspace(0, np.log10(sizes.length), LENGTHS)
    for mean in sizes.means:
        velocity, start = mean_natural(rows, mean), np.zeros(rows.shape[1])
        with warnings.catch_warnings():  # LSODA warns where the path says that it stalled
            warnings.simplefilter("ignore", UserWarning)
            arc = arc_path(velocity, start, lengths.tolist(), max_evaluations=MOST_BEHIND)
        w, slope = ray(rows, arc.found[-1])
        reached = len(arc.found) == LENGTHS
        out["to_ray"].append(degrees(arc.found[-1], w) if reached else np.nan)
        out["slope"].append(slope)
    return out


def _wide(sizes: Metrics, seed: int) -> dict[str, Any]:
    """Return where (p(1 − p))^κ ends with fewer samples than features, from a random start.

    There outputs move independently, u̇ = σ(−u)/(p(1 − p))^κ. `to_interpolant` is the angle to
    X̃⁺1, `to_single` that to X̃⁺e_k with k the sample of the largest margin at the start.
    """
    task = sparse_gaussian(sizes.n, sizes.wide, ones=ONES, seed=1000 + seed)
    rows: Vector = (task.y[:, None] * task.x).numpy()
    start = np.random.default_rng(seed).standard_normal(sizes.wide) / np.sqrt(sizes.wide)
    inverse = np.linalg.pinv(rows)
    first = int((rows @ start).argmax())
    out: dict[str, Any] = {"to_interpolant": [], "to_single": []}
    for kappa in sizes.wide_kappas:

        def velocity(b: Vector, kappa: float = kappa) -> Vector:
            u = rows @ b
            return inverse @ scaled(log_pull(u) - kappa * log_fisher(u))

        moved = arc_path(velocity, start, [sizes.length]).points[0] - start
        out["to_interpolant"].append(degrees(moved, inverse.sum(1)))
        out["to_single"].append(degrees(moved, inverse[:, first]))
    return out
