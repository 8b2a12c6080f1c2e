"""Cells that explain the paper's own curves: overshooting steps, depth, and what its loop costs."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from natgrad.diagnostics import cosine
from natgrad.experiments.kmh21.separable_cells import (
    Euclidean,
    Task,
    euclidean_flow,
    scores,
    timed,
)
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression, natural_logits
from natgrad.flows.layers import Layers
from natgrad.lab.cells import Result
from natgrad.limits import basis_pursuit
from natgrad.linalg import lstsq
from natgrad.parametrizations import Diagonal


@dataclass(frozen=True)
class Overshoot:
    """Natural gradient descent from random coefficients, N < D.

    Attributes:
        task: The data.
        scale: Standard deviation of the initial coefficients.
        step: Length η of the Euler steps.
        steps: Their number.
    """

    task: Task
    scale: float
    step: float
    steps: int


def overshoot(config: Overshoot) -> Result:
    """Return the accuracy of descent, and of the flow from the same coefficients.

    With independent rows a step is sₙ ← sₙ + η yₙ(1 + e^{−yₙsₙ}) for each datum apart ([KMH21]
    C.3, corrected), and β = β₀ + X⁺(s − s₀). A logit that starts wrong by s̃ = −10 leaps to 22000 η.
    """
    began = time.process_time()
    task = config.task.data()
    generator = torch.Generator().manual_seed(40_000 + config.task.seed)
    normal = torch.randn(config.task.dim, dtype=torch.float64, generator=generator)
    start = config.scale * normal
    first = task.y * (task.x @ start)
    margins = first.clone()
    for _ in range(config.steps):
        margins = margins + config.step * (1 + torch.exp(-margins))
    descent = start + lstsq(task.x, task.y * (margins - first)).solution
    times = torch.tensor([config.step * config.steps], dtype=torch.float64)
    flow = natural_flow_of_logistic_regression(start, task.batch, times).final
    return timed(
        {
            "descent": scores(task, descent)["accuracy"],
            "flow": scores(task, flow)["accuracy"],
            "spread": float(margins.max() / margins.min()),
        },
        began,
    )


@dataclass(frozen=True)
class Depth:
    """Natural gradient flow of a diagonal network with the pseudo-inverse in its factors, N < D.

    Attributes:
        task: The data.
        depth: Number of factors.
        scale: Initial value of all factors but the first, which is zero.
        times: When to look.
    """

    task: Task
    depth: int
    scale: float
    times: tuple[float, ...]


def natural_depth(config: Depth) -> Result:
    """Return accuracy at the times, errors of the training logits, and the end's cosine to ℓ1.

    `pursuit` is the cosine between the last β and the shortest interpolant in the ℓ1 norm.

    The logits s(t) are those of Theorem 4 at any depth. The shortest ẇ that moves them so is
    ẇ_l = c_l ⊙ Xᵀν̇, the form of gradient flow, whose factors are functions of z = Xᵀν
    (`natgrad.flows.layers`). So β(t) = β(Xᵀν) with ν solved from Xβ(Xᵀν) = s(t), by Newton's method
    from time to time: no differential equation is left.
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
        ArithmeticError: If no step towards the goal is short enough.
    """
    now = x @ layers.beta(v)
    share = 1.0
    while not _near(now, goal, tolerance):
        aim = now + share * (goal - now)
        moved = _newton(x, layers, v, aim, tolerance)
        if moved is None:
            share /= 2
            if share < 1e-6:
                raise ArithmeticError("Newton's method lost the natural gradient flow in depth.")
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
        scale: Initial value of all factors but the first, which is zero.
        step: Length η of the steps, on the mean loss.
        steps: How many are taken and timed.
    """

    task: Task
    depth: int
    scale: float
    step: float
    steps: int


def loop(config: Loop) -> Result:
    """Return the CPU seconds of one step, and the cosine to the flow at the same time.

    The step is as lean as PyTorch allows without the structure that the flow exploits: two
    products with X and a few vectors, in double precision; no autograd, no allocation saved.
    """
    task = config.task.data()
    signed = task.x * task.y[:, None]
    w = torch.zeros(config.depth, config.task.dim, dtype=torch.float64)
    w[1:] = config.scale
    network = Diagonal(config.depth)
    began = time.process_time()
    for _ in range(config.steps):
        slope = signed.mT @ torch.sigmoid(-(signed @ w.prod(0))) / config.task.n
        w = w + config.step * network.partial_products(w) * slope
    seconds = (time.process_time() - began) / config.steps
    times = (config.step * config.steps,)
    flow = euclidean_flow(Euclidean(config.task, config.depth, config.scale, times))
    agreement = float(cosine(w.prod(0), torch.from_numpy(flow["beta"])))
    return {
        "step_seconds": np.asarray(seconds),
        "cosine": np.asarray(agreement if math.isfinite(agreement) else 0.0),
        "seconds": np.asarray(seconds * config.steps),
    }
