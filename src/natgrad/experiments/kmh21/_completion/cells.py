"""Cells of matrix completion: one problem, one method, errors and rank of its answer."""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.data.completion import Completion, low_rank
from natgrad.diagnostics._conserved import balancedness
from natgrad.diagnostics._rank import effective_rank
from natgrad.directions import natural
from natgrad.flows import integrate
from natgrad.flows._methods.completion.flow import completion_flow
from natgrad.flows._methods.completion.hypothesis_steps import natural_completion
from natgrad.flows._methods.completion.observed_natural import observed_natural_flow
from natgrad.likelihoods import Gaussian
from natgrad.limits._nuclear_norm import nuclear_norm
from natgrad.parametrizations import MatrixProduct
from natgrad.stopping import Status, loss_below, time_reached

Arrays = dict[str, npt.NDArray[Any]]
Factors = tuple[Tensor, ...]

_WEIGHTS = 1_000_000  # offset between the seeds of data and of weights


@dataclass(frozen=True, kw_only=True)
class Task:
    """A square matrix of low rank with some entries observed."""

    size: int
    rank: int
    observed: int
    seed: int

    def problem(self) -> Completion:
        """Return the matrix and its observed entries."""
        return low_rank(
            shape=(self.size, self.size), rank=self.rank, observed=self.observed, seed=self.seed
        )

    def generator(self) -> torch.Generator:
        """Return the source of initial weights."""
        return torch.Generator().manual_seed(_WEIGHTS + self.seed)


@dataclass(frozen=True, kw_only=True)
class EuclideanConfig:
    """Gradient flow of β = W₁⋯W_L from Gaussian factors."""

    task: Task
    depth: int
    scale: float
    hidden: int | None = None
    """Width between factors; None for full width."""
    from_depth: int | None = None
    """Start from a collapsed product of this many Gaussian factors, ‖β₀‖_F = scale · √size."""
    train_error: float = 1e-6
    """Stop at this mean squared error on the observed entries."""
    max_evaluations: int = 15_000


def start(config: EuclideanConfig, dtype: torch.dtype = torch.float32) -> Factors:
    """Return the initial factors."""
    size, generator = config.task.size, config.task.generator()
    product, shape = MatrixProduct(config.depth), (size, size)
    if config.from_depth is None:
        factors = product.init_gaussian(
            shape, scale=config.scale, hidden=config.hidden, generator=generator
        )
    else:
        factors = product.init_collapsed(
            shape, from_depth=config.from_depth, scale=config.scale, generator=generator
        )
        norm = float(torch.linalg.matrix_norm(product.hypothesis(factors)))
        ratio = (config.scale * math.sqrt(size) / norm) ** (1 / config.depth)
        factors = tuple(ratio * w for w in factors)
    return tuple(w.to(dtype) for w in factors)


def euclidean(config: EuclideanConfig) -> Arrays:
    """Follow the flow until the observed entries fit, in float32."""
    problem = config.task.problem()
    flow = completion_flow(
        start(config),
        problem.positions,
        problem.values.float(),
        train_error=config.train_error,
        max_evaluations=config.max_evaluations,
    )
    beta = MatrixProduct(config.depth).hypothesis(flow.final).double()
    return summary(problem, beta) | {
        "converged": np.asarray(flow.status == Status.CONVERGED),
        "evaluations": np.asarray(flow.evaluations),
        "time": np.asarray(float(flow.times[-1])),
        "radius": np.asarray(float(flow.recorded["radius"][-1])),
    }


def summary(problem: Completion, beta: Tensor) -> Arrays:
    """Return errors and effective rank of a completed matrix."""
    return {
        "test": np.asarray(problem.test_error(beta)),
        "train": np.asarray(problem.train_error(beta)),
        "rank": np.asarray(float(effective_rank(beta))),
        "zero": np.asarray(problem.test_error(torch.zeros_like(beta))),
    }


def direct(config: EuclideanConfig) -> Arrays:
    """Return the limit of gradient flow at depth one, which moves only the observed entries."""
    problem = config.task.problem()
    (beta,) = start(config, torch.float64)
    return summary(problem, torch.where(problem.observed, problem.truth, beta))


@dataclass(frozen=True, kw_only=True)
class NuclearConfig:
    """The completion of least nuclear norm."""

    task: Task
    tolerance: float = 1e-5


def nuclear(config: NuclearConfig) -> Arrays:
    """Return errors and rank of this completion, and its certificate."""
    problem = config.task.problem()
    shape = (config.task.size, config.task.size)
    limit = nuclear_norm(problem.positions, problem.values, shape, rtol=config.tolerance)
    return summary(problem, limit.solution) | {"gap": np.asarray(limit.certificate)}


@dataclass(frozen=True, kw_only=True)
class NaturalConfig:
    """Natural descent with the Fisher over all entries."""

    task: Task
    depth: int
    scale: float
    selection: str = "min_norm"
    orthogonal: bool = False
    """Start from orthogonal factors whose product has singular values `scale`."""
    tolerance: float = 1e-7


def natural_all(config: NaturalConfig) -> Arrays:
    """Descend with error control on β, and compare with depth one from the same start."""
    problem, product = config.task.problem(), MatrixProduct(config.depth)
    shape, generator = (config.task.size, config.task.size), config.task.generator()
    make = product.init_orthogonal if config.orthogonal else product.init_gaussian
    factors = make(shape, scale=config.scale, generator=generator)
    path = natural_completion(
        factors,
        problem.positions,
        problem.values,
        selection="equal_share" if config.selection == "equal_share" else "min_norm",
        tolerance=config.tolerance,
    )
    before, after = product.hypothesis(factors), product.hypothesis(path.final)
    moved = after - before
    trivial = torch.where(problem.observed, problem.truth, before)
    return summary(problem, after) | {
        "trivial": np.asarray(problem.test_error(trivial)),
        "off": np.asarray(float(moved[~problem.observed].norm() / moved[problem.observed].norm())),
        "converged": np.asarray(path.status == Status.CONVERGED),
        "singular": np.asarray(path.status == Status.SINGULAR),
        "time": np.asarray(float(path.times[-1])),
        "steps": np.asarray(path.steps),
        "lifts": np.asarray(path.evaluations),
    }


@dataclass(frozen=True, kw_only=True)
class NaturalFlowConfig:
    """Natural gradient flow with the Fisher over all entries, at a tight tolerance."""

    task: Task
    depth: int
    scale: float
    rtol: float = 1e-9


def natural_flow(config: NaturalFlowConfig) -> Arrays:
    """Integrate the minimum-norm flow; measure how unobserved entries and balancedness move."""
    problem, product = config.task.problem(), MatrixProduct(config.depth)
    shape = (config.task.size, config.task.size)
    factors = product.init_gaussian(shape, scale=config.scale, generator=config.task.generator())
    flow = integrate(
        natural,
        Gaussian(reduction="sum"),
        product,
        factors,
        (problem.positions, problem.values),
        until=loss_below(0.5e-6 * config.task.observed) | time_reached(50.0),
        rtol=config.rtol,
        atol=1e-12,
        times=torch.tensor([50.0]),
    )
    moved = product.hypothesis(flow.final) - product.hypothesis(factors)
    return {
        "off": np.asarray(float(moved[~problem.observed].norm() / moved[problem.observed].norm())),
        "drift": np.asarray(drift(factors, flow.final)),
        "converged": np.asarray(flow.status == Status.CONVERGED),
    }


def drift(before: Factors, after: Factors) -> float:
    """Return how far the differences WᵢᵀWᵢ − Wᵢ₊₁Wᵢ₊₁ᵀ moved, relative to WᵢᵀWᵢ at the end."""
    product = MatrixProduct(len(before))
    moved = zip(balancedness(product, after), balancedness(product, before), strict=True)
    sizes = [float((a.mT @ a).norm()) for a, _ in pairwise(after)]
    return max(float((a - b).norm()) / s for (a, b), s in zip(moved, sizes, strict=True))


@dataclass(frozen=True, kw_only=True)
class GaussNewtonConfig:
    """Natural gradient flow with the Fisher over the observed entries."""

    task: Task
    depth: int
    scale: float


def gauss_newton(config: GaussNewtonConfig) -> Arrays:
    """Follow the flow until the observed entries fit."""
    problem, product = config.task.problem(), MatrixProduct(config.depth)
    shape = (config.task.size, config.task.size)
    factors = product.init_gaussian(shape, scale=config.scale, generator=config.task.generator())
    flow = observed_natural_flow(factors, problem.positions, problem.values)
    beta = product.hypothesis(flow.final)
    return summary(problem, beta) | {
        "converged": np.asarray(flow.status == Status.CONVERGED),
        "time": np.asarray(float(flow.times[-1])),
    }
