"""Cells of the further panels of Figure 5: dynamics, damping, random products, a race."""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from natgrad.data.completion import Completion
from natgrad.diagnostics._rank import effective_rank
from natgrad.errors import ConvergenceError
from natgrad.experiments.kmh21._completion.cells import (
    Arrays,
    EuclideanConfig,
    Factors,
    Task,
    drift,
    start,
    summary,
)
from natgrad.flows._methods.completion.flow import completion_flow
from natgrad.parametrizations import MatrixProduct
from natgrad.parametrizations._products.kernel import ProductKernel

EDGE = 1.8
"""Step × spectral radius of a loop near the edge of stability, which is 2."""


@dataclass(frozen=True, kw_only=True)
class DynamicsConfig:
    """Singular values of β along gradient flow."""

    task: Task
    depth: int
    scale: float
    values: int = 10
    """Number of largest values to keep."""
    points: int = 200
    """Number of saved times, equally spaced in log t."""
    rtol: float = 1e-6


def dynamics(config: DynamicsConfig) -> Arrays:
    """Follow the flow in float64 at a tight tolerance, and measure its conserved quantities."""
    problem, product = config.task.problem(), MatrixProduct(config.depth)
    shape = (config.task.size, config.task.size)
    factors = product.init_gaussian(shape, scale=config.scale, generator=config.task.generator())
    top = config.values

    def largest(w: Factors) -> Tensor:
        values: Tensor = torch.linalg.svdvals(product.hypothesis(w))[:top]
        return values

    flow = completion_flow(
        factors,
        problem.positions,
        problem.values,
        rtol=config.rtol,
        record={"values": largest},
    )
    t, s = flow.times.numpy(), flow.recorded["values"].numpy()
    times = np.geomspace(max(t[1], 1e-4 * t[-1]), t[-1], config.points)
    at = np.stack([np.interp(times, t, s[:, k]) for k in range(top)], axis=1)
    return summary(problem, product.hypothesis(flow.final)) | {
        "times": times,
        "values": at,
        "truth": torch.linalg.svdvals(problem.truth)[:top].numpy(),
        "drift": np.asarray(drift(factors, flow.final) if config.depth > 1 else 0.0),
    }


@dataclass(frozen=True, kw_only=True)
class GridConfig:
    """Natural descent with a fixed step and fixed damping, one setting of the search."""

    task: Task
    depth: int
    scale: float
    step: float
    damping: float
    train_error: float
    max_steps: int = 4000


def damped(config: GridConfig) -> Arrays:
    """Step W ← W − η (F + λ)⁻¹∇L, the Fisher over all entries, until the entries fit."""
    problem, product = config.task.problem(), MatrixProduct(config.depth)
    shape = (config.task.size, config.task.size)
    factors = product.init_gaussian(shape, scale=config.scale, generator=config.task.generator())
    trivial = problem.test_error(
        torch.where(problem.observed, problem.truth, product.hypothesis(factors))
    )
    steps, fits, broke = 0, False, False
    beta, error = product.hypothesis(factors), math.inf
    while True:
        beta = product.hypothesis(factors)
        residual = torch.where(problem.observed, problem.truth - beta, 0.0)
        error = float(residual.square().sum()) / config.task.observed
        fits, broke = error <= config.train_error, not error < 1e8
        if fits or broke or steps == config.max_steps:
            break
        kernel = ProductKernel(factors)
        try:
            z = kernel.solve(residual, accuracy=1e-6, damping=config.damping)
        except ConvergenceError:
            broke = True
            break
        moved = zip(factors, kernel.pull(z), strict=True)
        factors, steps = tuple(w + config.step * v for w, v in moved), steps + 1
    return {
        # After an overflow there is no completed matrix.
        "test": np.asarray(math.inf if broke else problem.test_error(beta)),
        "train": np.asarray(error),
        "trivial": np.asarray(trivial),
        "converged": np.asarray(fits),
        "broke": np.asarray(broke),
        "steps": np.asarray(steps),
    }


@dataclass(frozen=True, kw_only=True)
class ProductsConfig:
    """Random products of Gaussian matrices."""

    size: int
    depths: tuple[int, ...]
    seed: int


def products(config: ProductsConfig) -> Arrays:
    """Return the effective rank of W₁⋯W_L for each depth."""
    generator = torch.Generator().manual_seed(config.seed)
    ranks = []
    for depth in config.depths:
        model = MatrixProduct(depth)
        w = model.init_gaussian((config.size, config.size), scale=1.0, generator=generator)
        ranks.append(float(effective_rank(model.hypothesis(w))))
    return {"rank": np.asarray(ranks)}


@dataclass(frozen=True, kw_only=True)
class RaceConfig:
    """A race between the flow and a plain loop with autograd and fixed steps."""

    cell: EuclideanConfig
    max_steps: int = 400_000


def race(config: RaceConfig) -> Arrays:
    """Time both to the same training error; the loop takes the longest step that agrees.

    The loop's step starts near the edge of stability, at 1.8 over the largest spectral radius along
    the flow. It is halved until the test error is within a tenth of the flow's, or both are below
    1e-4, where the stopping point decides. Only the measured seconds differ from run to run.
    """
    problem, cell = config.cell.task.problem(), config.cell
    factors, values = start(cell), problem.values.float()
    product = MatrixProduct(cell.depth)
    completion_flow(factors, problem.positions, values, max_evaluations=50)  # warm
    flow = completion_flow(factors, problem.positions, values)
    wanted = problem.test_error(product.hypothesis(flow.final))
    step = EDGE / float(flow.recorded["radius"][-1])
    for _ in range(6):
        beta, steps, seconds = _loop(problem, factors, step, config.max_steps)
        reached = problem.test_error(beta)
        agree = abs(reached / wanted - 1) <= 0.1 or max(reached, wanted) <= 1e-4
        if agree and problem.train_error(beta) <= 1.01e-6:
            break
        step /= 2
    return {
        "flow_seconds": np.asarray(flow.seconds),
        "loop_seconds": np.asarray(seconds),
        "evaluations": np.asarray(flow.evaluations),
        "steps": np.asarray(steps),
        "expected_steps": np.asarray(float(flow.times[-1]) / step),
        "flow_test": np.asarray(wanted),
        "loop_test": np.asarray(reached),
        "agree": np.asarray(agree),
    }


def _loop(
    problem: Completion, start: Factors, step: float, max_steps: int
) -> tuple[Tensor, int, float]:
    """Descend by autograd until the entries fit; return β, steps and seconds."""
    with torch.enable_grad():
        factors = [w.clone().requires_grad_() for w in start]
        rows, columns = problem.positions.unbind(1)
        values = problem.values.float()
        goal = 0.5e-6 * len(values)
        began, steps = time.perf_counter(), 0
        while True:
            beta = factors[0]
            for w in factors[1:]:
                beta = beta @ w
            loss = 0.5 * (beta[rows, columns] - values).square().sum()
            if not goal < loss.item() < math.inf or steps == max_steps:
                break
            gradients = torch.autograd.grad(loss, factors)
            with torch.no_grad():
                for w, g in zip(factors, gradients, strict=True):
                    w -= step * g
            steps += 1
    return beta.detach(), steps, time.perf_counter() - began
