"""Cells of pinn/inverse."""

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from natgrad.experiments.pinn._equations.base import uniform
from natgrad.experiments.pinn._equations.heat import CONDUCTIVITY, Heat
from natgrad.experiments.pinn._solve.networks import network
from natgrad.experiments.pinn.inverse.config import InverseFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.optim import GaussNewton

START = 1.0
"""κ before the first step."""
# Weight of the equation and its boundary relative to the data: they are exact, the data are not.
_EXACT = 100.0


def compute(config: InverseFigure, sweep: Sweep) -> Arrays:
    """Return κ along the steps, without and with noise, and the Cramér–Rao bound."""
    seeds = range(config.first_seed, config.first_seed + config.seeds)
    levels = (0.0, config.noise)

    def cell(noise: float, seed: int) -> Cell:
        shared = (config.width, config.size, config.observed, config.steps)
        return Cell(recover, Recovery(seed, noise, *shared), f"noise {noise:g}, seed {seed}")

    found = sweep([cell(noise, seed) for noise in levels for seed in seeds], "fits")
    arrays = Arrays(noise=list(levels), seed=list(seeds))
    shape = (2, len(seeds))
    arrays.add(
        "kappa", np.stack([f["kappa"] for f in found]).reshape(*shape, -1), "noise", "seed", "step"
    )
    for name in ("bound", "seconds"):
        arrays.add(name, np.array([f[name] for f in found]).reshape(shape), "noise", "seed")
    return arrays


@dataclass(frozen=True)
class Recovery:
    """One fit of u and κ.

    Attributes:
        seed: Seed of the network, the observed points and their noise.
        noise: Standard deviation of the noise.
        width: Hidden units.
        size: Points per axis for the equation.
        observed: Number of observations.
        steps: Trial steps.
    """

    seed: int
    noise: float
    width: int
    size: int
    observed: int
    steps: int


def recover(config: Recovery) -> Result:
    """Return κ after each step, and the least standard deviation of an unbiased estimate.

    The bound is that of Cramér and Rao for the one unknown κ: σ / |∂u/∂κ| at the observed points,
    with ∂u/∂κ = −π² t u.
    """
    kappa = torch.nn.Parameter(torch.tensor(START, dtype=torch.float64))
    equation = Heat(kappa)
    net = network(2, (config.width,), "torch", config.seed)
    source = torch.Generator().manual_seed(2000 + config.seed)
    x = uniform(config.observed, 2, source)
    truth = equation.truth(x)
    noise = torch.randn(len(truth), dtype=torch.float64, generator=source)
    y = truth + config.noise * noise
    points = equation.fixed(config.size)

    def closure() -> dict[str, Any]:
        blocks = equation.blocks(net, points)
        exact = {name: (r, _EXACT * weight) for name, (r, weight) in blocks.items()}
        return {**exact, "data": equation.field(net, x) - y}

    # Momentum slows κ: after 300 steps the largest relative error of seeds 0–7 is 3e-5 with it and
    # 6e-7 without.
    optimizer = GaussNewton(net, coefficients=[kappa], momentum=0)
    path, began = [], time.process_time()
    for _ in range(config.steps):
        optimizer.step(closure)
        path.append(kappa.item())
    sensitivity = math.pi**2 * x[:, 1] * truth
    return {
        "kappa": np.array(path),
        "bound": np.asarray(config.noise / float(sensitivity.norm())),
        "seconds": np.asarray(time.process_time() - began),
    }


def error(arrays: Arrays, noise: int) -> np.ndarray:
    """Return κ − its true value at the end of each fit."""
    return np.asarray(arrays["kappa"][noise, :, -1] - CONDUCTIVITY)
