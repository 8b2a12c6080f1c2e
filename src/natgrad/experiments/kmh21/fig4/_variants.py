"""Cells that explain the paper's curves: overshooting steps, depth, and the cost of its loop."""

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.data.separable import Separable
from natgrad.diagnostics import cosine
from natgrad.experiments.kmh21._separable.cells import (
    Euclidean,
    Task,
    euclidean_flow,
    scores,
    timed,
)
from natgrad.flows._methods.dual.layers import Layers
from natgrad.flows.closed_forms import natural_logits
from natgrad.lab.cell import Result
from natgrad.limits import basis_pursuit
from natgrad.linalg import lstsq
from natgrad.parametrizations import Diagonal


@dataclass(frozen=True)
class Overshoot:
    """Natural gradient descent from random coefficients, N ≤ D.

    Attributes:
        task: The data.
        scales: Standard deviations of the initial coefficients, each tried on the same draw.
        step: Length η of the Euler steps.
        steps: Their number.
    """

    task: Task
    scales: tuple[float, ...]
    step: float
    steps: int


def overshoot(config: Overshoot) -> Result:
    """Return the accuracy of descent, and of the flow from the same coefficients, by scale.

    With independent rows each logit has its own step, sₙ ← sₙ + η yₙ(1 + e^{−yₙsₙ}) ([KMH21] C.3,
    corrected), and β = β₀ + X⁺(s − s₀) holds for steps as for the flow. A logit that starts at
    s̃ = −10 jumps to 22000 η.
    """
    began = time.process_time()
    task = config.task.data()
    generator = torch.Generator().manual_seed(40_000 + config.task.seed)
    normal = torch.randn(config.task.dim, dtype=torch.float64, generator=generator)
    start = normal[:, None] * torch.tensor(config.scales, dtype=torch.float64)  # (d, scales)
    first = task.x @ start
    y = task.y[:, None].expand_as(first)
    margins = y * first
    for _ in range(config.steps):
        margins = margins + config.step * (1 + torch.exp(-margins))
    flow = natural_logits(first, y, config.step * config.steps)
    moved = torch.cat([y * margins - first, flow - first], dim=1)
    size = moved.norm(dim=0)  # columns differ by thirty orders of magnitude: scale them all to 1
    ends = torch.cat([start, start], dim=1) + lstsq(task.x, moved / size).solution * size
    descent, flowed = scores(task, ends.mT)["accuracy"].reshape(2, -1)
    spread = margins.amax(0) / margins.amin(0)
    return timed({"descent": descent, "flow": flowed, "spread": spread.numpy()}, began)


@dataclass(frozen=True)
class Depth:
    """Natural gradient flow of a diagonal network with the pseudo-inverse in its factors, N < D.

    Attributes:
        task: The data.
        depth: Number of factors.
        scale: Initial value of all factors except the first, which is zero.
        times: Times to record.
    """

    task: Task
    depth: int
    scale: float
    times: tuple[float, ...]


def natural_depth(config: Depth) -> Result:
    """Return accuracy at the times, errors of the training logits, and the end's cosine to ℓ1.

    `pursuit` is the cosine between the last β and the shortest interpolant in the ℓ1 norm.

    The logits s(t) are those of Theorem 4 at any depth. The shortest ẇ that produces them is
    ẇ_l = c_l ⊙ Xᵀν̇. This is the form of gradient flow, whose factors are functions of z = Xᵀν
    (`dual_layers`). So β(t) = β(Xᵀν), where Newton's method solves Xβ(Xᵀν) = s(t) for ν at each
    time. There is no differential equation to integrate.
    """
    began = time.process_time()
    task = config.task.data()
    x, y = task.batch
    layers, v = Layers.of(Diagonal(config.depth).init_free(config.task.dim, scale=config.scale))
    betas, errors = [], []
    for t in config.times:
        goal = natural_logits(torch.zeros_like(y), y, t)
        v = reach(x, layers, v, goal)
        betas.append(layers.beta(v))
        errors.append(float((x @ betas[-1] - goal).abs().max() / goal.abs().max()))
    beta = torch.stack(betas)
    out = {"accuracy": scores(task, beta)["accuracy"], "error": np.array(errors)}
    shortest = basis_pursuit(x, y).solution
    return timed(out | {"pursuit": float(cosine(beta[-1], shortest))}, began)


def reach(x: Tensor, layers: Layers, v: Tensor, goal: Tensor, tolerance: float = 1e-9) -> Tensor:
    """Return the layers (by the smallest, v) moved along Xᵀν until the logits are `goal`.

    Raises:
        ArithmeticError: If no step toward the goal is short enough.
    """
    now = x @ layers.beta(v)
    share = 1.0
    while not _near(now, goal, tolerance):
        aim = now + share * (goal - now)
        moved = _newton(x, layers, v, aim, tolerance)
        if moved is None:
            share /= 2
            if share < 1e-6:
                raise ArithmeticError(
                    "Newton's method lost the natural gradient flow of the deep network."
                )
            continue
        v, now, share = moved, x @ layers.beta(moved), min(1.0, 2 * share)
    return v


def _newton(x: Tensor, layers: Layers, v: Tensor, aim: Tensor, tolerance: float) -> Tensor | None:
    """Return v with logits `aim`, or None if twelve iterations do not find it."""
    z, here = torch.zeros_like(v), v
    for _ in range(12):
        residual = aim - x @ layers.beta(here)
        if _near(residual, torch.zeros_like(aim), tolerance, aim):
            return here
        kernel = (x * layers.speed(here)) @ x.mT
        factor, failed = torch.linalg.cholesky_ex(kernel)
        if int(failed):
            return None
        z = z + x.mT @ torch.cholesky_solve(residual[:, None], factor)[:, 0]
        here = layers.advance(v, z)
        if not bool(torch.isfinite(here).all()):
            return None
    return None


def _near(a: Tensor, b: Tensor, tolerance: float, like: Tensor | None = None) -> bool:
    size = float((b if like is None else like).abs().max())
    return float((a - b).abs().max()) <= tolerance * size


@dataclass(frozen=True)
class Loop:
    """The paper's loop: gradient descent with a constant step, timed.

    Attributes:
        task: The data.
        depth: Number of factors.
        scale: Initial value of all factors except the first, which is zero.
        step: Length η of the steps, on the mean loss.
        steps: How many are taken and timed.
    """

    task: Task
    depth: int
    scale: float
    step: float
    steps: int


def loop(config: Loop) -> Result:
    """Return the CPU seconds of one step, and how far the loop ends from the flow.

    The step is as cheap as PyTorch allows without the structure that the flow exploits: two
    products with X and a few vectors, in double precision, without autograd. Its error is of first
    order in η. `distance` is therefore measured from the extrapolation of loops with η/2 and η/4,
    relative to the flow at the same time. `distance_half` is measured from the loop with η/2.
    """
    task = config.task.data()
    began = time.process_time()
    _descend(task, config, 1)
    seconds = (time.process_time() - began) / config.steps
    half, quarter = _descend(task, config, 2), _descend(task, config, 4)
    times = (config.step * config.steps,)
    flow = euclidean_flow(Euclidean(config.task, config.depth, config.scale, times))
    end = torch.from_numpy(flow["beta"])

    def distance(beta: Tensor) -> npt.NDArray[np.float64]:
        return np.asarray(float((beta - end).norm() / end.norm()))

    return {
        "step_seconds": np.asarray(seconds),
        "distance": distance(2 * quarter - half),
        "distance_half": distance(half),
        "seconds": np.asarray(seconds * config.steps),
    }


def _descend(task: Separable, config: Loop, parts: int) -> Tensor:
    """Return β after the steps of the loop, each divided into parts."""
    signed = task.x * task.y[:, None]
    w = torch.zeros(config.depth, config.task.dim, dtype=torch.float64)
    w[1:] = config.scale
    network, step = Diagonal(config.depth), config.step / parts
    for _ in range(config.steps * parts):
        slope = signed.mT @ torch.sigmoid(-(signed @ w.prod(0))) / config.task.n
        w = w + step * network.partial_products(w) * slope
    return w.prod(0)
