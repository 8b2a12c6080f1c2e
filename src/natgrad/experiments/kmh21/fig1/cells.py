"""Cells of Figure 1: one observation, two parametrizations, EGD and NGD."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from natgrad.directions import GaussianInputs, euclidean, natural
from natgrad.experiments.kmh21.fig1.config import Fig1
from natgrad.flows import descend, integrate
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.likelihoods import Gaussian
from natgrad.parametrizations import Diagonal, Direct
from natgrad.stopping import steps_reached

INPUT, TARGET = (1.0, 0.5), 2.0
"""The one observation: every β with INPUT · β = TARGET is an optimum."""
START = (0.15, 1.2)
"""The initial β in both parametrizations."""

Space = Literal["direct", "diagonal"]
Method = Literal["EGD", "NGD"]
SPACES: tuple[Space, ...] = ("direct", "diagonal")
METHODS: tuple[Method, ...] = ("EGD", "NGD")


def compute(config: Fig1, sweep: Sweep) -> Arrays:
    """Return paths in both parameter spaces, and their images in hypothesis space."""
    pairs = [(space, method) for space in SPACES for method in METHODS]

    def cell(space: Space, method: Method, step: float = 0.0) -> Cell:
        until = config.until if step == 0 else 1.0
        given = Path(space, method, config.correlation, until, config.points, step)
        return Cell(path, given, f"{method} in {space} parameters, step {step:g}")

    steps = (config.step, config.step / 2)
    flows = sweep([cell(*pair) for pair in pairs], "paths")
    finite = sweep([cell(s, "NGD", h) for h in steps for s in SPACES], "finite steps")
    arrays = Arrays(
        space=list(SPACES),
        method=list(METHODS),
        time=np.linspace(0, config.until, config.points),
        coordinate=[1, 2],
        step=steps,
    )
    shape = (len(SPACES), len(METHODS), config.points, 2)
    dims = ("space", "method", "time", "coordinate")
    arrays.add("params", np.stack([f["params"] for f in flows]).reshape(shape), *dims)
    arrays.add("beta", np.stack([f["beta"] for f in flows]).reshape(shape), *dims)
    arrays.add("loss", np.stack([f["loss"] for f in flows]).reshape(shape[:3]), *dims[:3])
    ends = np.stack([f["beta"][-1] for f in finite]).reshape(2, 2, 2)
    arrays.add("finite_end", ends, "step", "space", "coordinate")
    return arrays


@dataclass(frozen=True)
class Path:
    """One trajectory.

    Attributes:
        space: The parametrization.
        method: The direction.
        correlation: Correlation of the two inputs over which the Fisher is averaged.
        until: Final time.
        points: Number of saved points, including the start.
        step: Step length; 0 stands for the flow.
    """

    space: Space
    method: Method
    correlation: float
    until: float
    points: int
    step: float = 0.0


def path(config: Path) -> Result:
    """Return a path in parameter space, `(points, 2)`, and its image in hypothesis space.

    The two layers of the diagonal network start equal and stay equal: β = w², and one w is drawn.
    """
    model: Direct | Diagonal = Direct() if config.space == "direct" else Diagonal(2)
    start = torch.tensor(START, dtype=torch.float64)
    params = start if config.space == "direct" else torch.sqrt(start).expand(2, 2).clone()
    batch = (
        torch.tensor([INPUT], dtype=torch.float64),
        torch.tensor([TARGET], dtype=torch.float64),
    )
    over = _inputs(config.correlation)
    direction = partial(natural, fisher_over=over) if config.method == "NGD" else euclidean
    arguments: Any = (direction, Gaussian(reduction="sum"), model, params, batch)
    if config.step:
        count = steps_reached(round(config.until / config.step))
        found = descend(*arguments, step=config.step, until=count)
    else:
        times = torch.linspace(0, config.until, config.points, dtype=torch.float64)
        found = integrate(*arguments, until=config.until, times=times, method="dop853", rtol=1e-9)
    states: Tensor = found.states
    layers = states if config.space == "direct" else states[:, 0]
    image = states if config.space == "direct" else states.prod(1)
    return {"params": layers.numpy(), "beta": image.numpy(), "loss": found.losses.numpy()}


def _inputs(correlation: float) -> GaussianInputs:
    covariance = [[1.0, correlation], [correlation, 1.0]]
    return GaussianInputs(torch.tensor(covariance, dtype=torch.float64))


def natural_optimum(correlation: float) -> np.ndarray:
    """Return where natural gradient flow must end: β₀ + C⁻¹x (y − x·β₀) / (xᵀC⁻¹x)."""
    x, start = np.array(INPUT), np.array(START)
    ahead = np.linalg.solve([[1.0, correlation], [correlation, 1.0]], x)
    return np.asarray(start + ahead * (TARGET - x @ start) / (x @ ahead))


def euclidean_optimum(space: Space) -> np.ndarray:
    """Return where gradient flow must end.

    Direct: the nearest optimum. Diagonal with equal layers: β = β₀ ⊙ e^{ζx}, with ζ such that
    x·β = y, here a quadratic equation in e^{ζ/2} because x = (1, ½).
    """
    x, start = np.array(INPUT), np.array(START)
    if space == "direct":
        return np.asarray(start + x * (TARGET - x @ start) / (x @ x))
    a, b = start * x
    root = (-b + math.sqrt(b * b + 4 * a * TARGET)) / (2 * a)
    return np.array([start[0] * root**2, start[1] * root])
