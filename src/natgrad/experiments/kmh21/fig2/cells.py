"""Cells of Figure 2: flows on the planar data, and the separators that they tend to."""

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from natgrad.data.separable import planar
from natgrad.directions import euclidean, natural
from natgrad.experiments.kmh21.fig2.config import Fig2
from natgrad.flows import integrate
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.likelihoods import Bernoulli
from natgrad.limits import max_margin, natural_flow
from natgrad.parametrizations import Diagonal, Direct


def compute(config: Fig2, sweep: Sweep) -> Arrays:
    """Return trajectories of β, limits and data."""

    def cell(method: Any, depth: int) -> Cell:
        until = config.euclidean_until if method == "EGD" else config.natural_until
        given = Flow(config.n, method, depth, config.scale, (-1.0, until), config.points)
        return Cell(flow, given, f"{method} L={depth}")

    asked = [cell(method, depth) for method in ("EGD", "NGD") for depth in config.depths]
    found = sweep(asked, "flows")
    (ends,) = sweep([Cell(limits, Limits(config.n, config.depths), "limits")], "")
    arrays = Arrays(
        depth=config.depths,
        euclidean_time=np.logspace(-1, config.euclidean_until, config.points),
        natural_time=np.logspace(-1, config.natural_until, config.points),
        coordinate=[1, 2],
    )
    many = len(config.depths)
    egd, ngd = (np.stack([f["beta"] for f in part]) for part in (found[:many], found[many:]))
    arrays.add("egd", egd, "depth", "euclidean_time", "coordinate")
    arrays.add("ngd", ngd, "depth", "natural_time", "coordinate")
    arrays.add("egd_angle", degrees(egd), "depth", "euclidean_time")
    arrays.add("ngd_angle", degrees(ngd), "depth", "natural_time")
    arrays.add("norm_limit_angle", degrees(ends["norms"]), "depth")
    arrays.add("vertex_angle", degrees(ends["vertex"]))
    arrays.add("vertex_basis", ends["basis"], "support")
    arrays.add("x", ends["x"], "sample", "coordinate")
    arrays.add("y", ends["y"], "sample")
    return arrays


def degrees(beta: Any) -> Any:
    """Return the angle between β and the first axis, in degrees."""
    return np.degrees(np.arctan2(beta[..., 1], beta[..., 0]))


@dataclass(frozen=True)
class Flow:
    """One trajectory from β = 0.

    Attributes:
        n: Number of samples.
        method: The direction.
        depth: Number of factors; 1 is the direct parametrization.
        scale: Initial value of all factors except the first, which is zero.
        log_times: First and last saved time, as powers of ten.
        points: Number of saved times, equally spaced in log t.
    """

    n: int
    method: Literal["EGD", "NGD"]
    depth: int
    scale: float
    log_times: tuple[float, float]
    points: int


def flow(config: Flow) -> Result:
    """Return β at the saved times, shape `(points, 2)`."""
    task = planar(config.n)
    times = torch.logspace(*config.log_times, config.points, dtype=torch.float64)
    model: Direct | Diagonal = Direct() if config.depth == 1 else Diagonal(config.depth)
    start = (
        torch.zeros(2, dtype=torch.float64)
        if isinstance(model, Direct)
        else model.init_free(2, scale=config.scale)
    )
    found = integrate(
        euclidean if config.method == "EGD" else natural,
        Bernoulli(),
        model,
        start,
        task.batch,
        until=float(times[-1]),
        times=times,
        rtol=1e-5 if config.method == "EGD" else 1e-8,
    )
    states: Tensor = found.states
    beta = states if config.depth == 1 else states.prod(1)
    return {"beta": beta.numpy(), "loss": found.losses.numpy()}


@dataclass(frozen=True)
class Limits:
    """All limits of the planar data.

    Attributes:
        n: Number of samples.
        depths: L of the ℓ_{2/L} max margins.
    """

    n: int
    depths: tuple[int, ...]


def limits(config: Limits) -> Result:
    """Return the ℓ_{2/L} max margins `(depths, 2)`, the natural vertex, and the data."""
    task = planar(config.n)
    norms = []
    for depth in config.depths:
        if depth <= 2:
            norms.append(max_margin(*task.batch, p=2 / depth).solution)
        else:
            norms.append(quasi_norm_optimum(task.y[:, None] * task.x, 2 / depth))
    vertex = natural_flow(*task.batch)
    assert vertex.basis is not None
    return {
        "norms": torch.stack(norms).numpy(),
        "vertex": vertex.solution.numpy(),
        "basis": vertex.basis.numpy(),
        "x": task.x.numpy(),
        "y": task.y.numpy(),
    }


def quasi_norm_optimum(rows: Tensor, p: float) -> Tensor:
    """Return argmin ‖b‖_p subject to rows · b ≥ 1 in the plane, p ≤ 1, among all its vertices.

    Σ|b|^p is concave within each quadrant, so its minimum is at a vertex of the feasible set cut by
    the axes. There are finitely many such vertices, and all are tried. The local search of
    `limits.max_margin` need not find the best one.

    Raises:
        ArithmeticError: If no vertex is feasible: the data are not separable.

    Example:
        >>> rows = torch.tensor([[1.0, 2.0], [1.2, 0.5]], dtype=torch.float64)
        >>> quasi_norm_optimum(rows, 0.5).tolist()
        [1.0, 0.0]
    """
    points = rows.numpy()
    lines = [(*row, 1.0) for row in points] + [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0)]
    best, value = None, math.inf
    for (a, b, e), (c, d, f) in itertools.combinations(lines, 2):
        determinant = a * d - b * c
        if abs(determinant) < 1e-12:
            continue
        point = np.array([e * d - b * f, a * f - e * c]) / determinant
        if (points @ point >= 1 - 1e-9).all():
            norm = float((np.abs(point) ** p).sum())
            if norm < value:
                best, value = point, norm
    if best is None:
        raise ArithmeticError("no vertex is feasible, so the data are not separable.")
    return torch.from_numpy(best)
