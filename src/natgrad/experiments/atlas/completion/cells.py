"""Cells of matrix completion: one method on one matrix, its errors and its steps."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from natgrad.data.completion import Completion as Problem
from natgrad.data.completion import low_rank
from natgrad.directions import euclidean
from natgrad.experiments.atlas.completion.config import Completion
from natgrad.flows import descend
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep
from natgrad.likelihoods import Gaussian
from natgrad.parametrizations import MatrixProduct
from natgrad.stopping import loss_below, steps_reached

TRAIN = 1e-6
"""Mean squared error on the observed entries at which every method stops."""
_MOST_STEPS = 20_000
_MOST_NATURAL = 3_000
_CG = 1e-4  # relative residual of a natural direction

Factors = list[Tensor]


class Natural(NamedTuple):
    """Steps η of a natural direction.

    Attributes:
        size: η, if no cap shortens the step.
        cap: Largest ‖ΔW‖/‖W‖ of a factor; None for no cap.
        over_all: Whether the Fisher is over all entries.
        damping: λ.
    """

    size: float
    cap: float | None = 0.05
    over_all: bool = False
    damping: float = 0.0


METHODS: dict[str, Natural | None] = {
    "EGD": None,
    "NGD, observed": Natural(0.3),
    "NGD, observed, λ = 0.3": Natural(0.3, damping=0.3),
    "NGD, observed, no cap, η = .1": Natural(0.1, cap=None),
    "NGD, observed, no cap, η = .01": Natural(0.01, cap=None),
    "NGD, all entries": Natural(0.3, over_all=True),
}


def compute(config: Completion, sweep: Sweep) -> Arrays:
    """Return errors and steps of every method, depth and seed."""
    size = (config.size, config.rank, config.observed, config.scale)
    asked = [
        Cell(completed, Completed(*size, depth, name, seed), f"{name}, L = {depth}, seed {seed}")
        for name in METHODS
        for depth in config.depths
        for seed in config.seeds
    ]
    found = sweep(asked, "completions")
    arrays = Arrays(method=tuple(METHODS), depth=config.depths, seed=config.seeds)
    shape = (len(METHODS), len(config.depths), len(config.seeds))
    for key in ("test", "train", "steps"):
        values = np.array([float(f[key]) for f in found]).reshape(shape)
        arrays.add(key, values, "method", "depth", "seed")
    return arrays


@dataclass(frozen=True)
class Completed:
    """One method on one matrix."""

    size: int
    rank: int
    observed: int
    scale: float
    depth: int
    method: str
    seed: int


def completed(config: Completed) -> Result:
    """Return the errors on both kinds of entries, and the steps taken."""
    shape = (config.size, config.size)
    problem = low_rank(shape=shape, rank=config.rank, observed=config.observed, seed=config.seed)
    generator = torch.Generator().manual_seed(1_000_000 + config.seed)
    model = MatrixProduct(config.depth)
    start = model.init_gaussian(shape, scale=config.scale, generator=generator)
    method = METHODS[config.method]
    if method is None:
        beta, steps = _gradient(problem, model, start)
    else:
        beta, steps = _natural(problem, list(start), method)
    values = {"test": problem.test_error(beta), "train": problem.train_error(beta), "steps": steps}
    return {name: np.asarray(float(value)) for name, value in values.items()}


def _gradient(
    problem: Problem, model: MatrixProduct, start: tuple[Tensor, ...]
) -> tuple[Tensor, int]:
    """Descend with 1.5 over the curvature at a balanced solution, of the 2 that are stable."""
    top = float(torch.linalg.matrix_norm(problem.truth, 2))
    curvature = model.depth * top ** (2 - 2 / model.depth)
    n = len(problem.values)
    run = descend(
        euclidean, Gaussian(reduction="sum"), model, start, (problem.positions, problem.values),
        step=1.5 / curvature, until=loss_below(0.5 * TRAIN * n) | steps_reached(_MOST_STEPS),
        save_every=_MOST_STEPS,
    )  # fmt: skip
    return model.hypothesis(run.final), run.steps


def _natural(problem: Problem, factors: Factors, method: Natural) -> tuple[Tensor, int]:
    """Take natural steps until the observed entries fit, the loss overflows, or it takes long."""
    mask = torch.ones_like(problem.truth) if method.over_all else problem.observed.to(factors[0])
    beta = _product(factors)
    for step in range(_MOST_NATURAL):
        beta = _product(factors)
        left = (problem.truth - beta) * problem.observed
        error = float(left.square().sum()) / len(problem.values)
        if error < TRAIN or not error < 1e12:
            return beta, step
        along = lift(factors, left, mask, method.damping)
        size = method.size
        if method.cap is not None:
            pairs = zip(factors, along, strict=True)
            size = min(size, *(method.cap * float(w.norm() / v.norm()) for w, v in pairs))
        factors = [w + size * v for w, v in zip(factors, along, strict=True)]
    return beta, _MOST_NATURAL


def _product(factors: Factors) -> Tensor:
    beta = factors[0]
    for w in factors[1:]:
        beta = beta @ w
    return beta


def lift(factors: Factors, target: Tensor, mask: Tensor, damping: float = 0.0) -> Factors:
    """Return Jᵀ(JJᵀ + λ)⁻¹ target, J the derivative of the entries in the mask by the factors.

    With Aᵢ and Bᵢ the products left and right of factor i, JJᵀ maps X to the mask of
    Σ AᵢAᵢᵀ X BᵢᵀBᵢ. It is inverted by conjugate gradients with its diagonal as preconditioner.
    """
    eye = torch.eye(len(target), dtype=target.dtype)
    left, right = [eye], [eye]
    for w in factors[:-1]:
        left.append(left[-1] @ w)
    for w in factors[:0:-1]:
        right.insert(0, w @ right[0])
    outer = [(a @ a.mT, b.mT @ b) for a, b in zip(left, right, strict=True)]
    diagonal = sum(torch.outer(a.diagonal(), b.diagonal()) for a, b in outer) + damping
    x, residual = torch.zeros_like(target), target.clone()
    z = residual / diagonal * mask
    along, energy, goal = z, (residual * z).sum(), _CG * float(target.norm())
    for _ in range(500):
        if float(residual.norm()) <= goal:
            break
        image = (sum(a @ along @ b for a, b in outer) + damping * along) * mask
        length = energy / (along * image).sum()
        x = x + length * along
        residual = residual - length * image
        z = residual / diagonal * mask
        energy, before = (residual * z).sum(), energy
        along = z + energy / before * along
    return [a.mT @ x @ b.mT for a, b in zip(left, right, strict=True)]
