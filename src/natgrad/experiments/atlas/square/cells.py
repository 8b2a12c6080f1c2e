"""Cells of square loss: ends of flows with every damping, and risks of two interpolants."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.integrate import DOP853

from natgrad.experiments.atlas.square.config import Square
from natgrad.flows._by_length import Vector
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.experiment import Sweep

CASES = ("clean, isotropic", "clean, misaligned", "noise alone", "noisy, misaligned")
METRICS = ("gradient descent", "natural gradient")
_MOST_STEPS = 4_000
_FITTED = 1e-10  # largest residual, relative to the labels, at which a flow ends


def compute(config: Square, sweep: Sweep) -> Arrays:
    """Return distances between the ends of all flows, and risks in regression."""
    diagonal = [
        Cell(diagonal_ends, Diagonal(config.n, config.dim, depth, config.dampings, s),
             f"L = {depth}, seed {s}")
        for depth in config.depths
        for s in config.seeds
    ]  # fmt: skip
    products = [
        Cell(product_ends, Product(config.side, config.observed, config.dampings, s),
             f"product, seed {s}")
        for s in config.seeds
    ]  # fmt: skip
    regression = Cell(
        risks, Regression(config.samples, config.features, config.draws), "regression"
    )
    found = sweep([*diagonal, *products, regression], "flows")
    many = len(config.seeds)
    arrays = Arrays(
        depth=config.depths,
        seed=config.seeds,
        damping=config.dampings,
        case=CASES,
        metric=METRICS,
        draw=list(range(config.draws)),
    )
    gaps = np.array([f["gaps"] for f in found[: len(diagonal)]])
    arrays.add("diagonal", gaps.reshape(len(config.depths), many, -1), "depth", "seed", "damping")
    arrays.add("product", np.stack([f["gaps"] for f in found[-many - 1 : -1]]), "seed", "damping")
    arrays.add("risk", found[-1]["risk"], "case", "metric", "draw")
    return arrays


def _interpolated(velocity: Callable[[Vector], tuple[Vector, float]], start: Vector) -> Vector:
    """Return the end of a flow, whose velocity comes with its largest relative residual."""
    stepper = DOP853(lambda t, w: velocity(w)[0], 0.0, start, 1e9, rtol=1e-12, atol=1e-14)
    for _ in range(_MOST_STEPS):
        stepper.step()
        if velocity(stepper.y)[1] <= _FITTED:
            break
    else:
        return np.full_like(start, np.nan)
    found: Vector = stepper.y
    return found


def _pushed(kernel: Vector, residual: Vector, damping: float | None) -> Vector:
    """Return (K + λ)⁻¹r in units of time of order one; r for gradient flow."""
    size = float(np.trace(kernel)) / len(kernel)
    if damping is None:
        return residual / size
    solved = np.linalg.solve(kernel + damping * np.eye(len(kernel)), residual)
    return np.asarray(solved * (1 + damping / size))


@dataclass(frozen=True)
class Diagonal:
    """Flows of one diagonal network to an interpolant."""

    n: int
    dim: int
    depth: int
    dampings: tuple[float, ...]
    seed: int


def diagonal_ends(config: Diagonal) -> Result:
    """Return ‖β_λ − β‖/‖β‖, β the end of gradient flow and β_λ that of natural flow with λ."""
    source = np.random.default_rng(config.seed)
    x = source.standard_normal((config.n, config.dim))
    y = source.standard_normal(config.n)
    start = source.uniform(0.7, 1.2, (config.depth, config.dim))
    start[0] = source.uniform(-0.3, 0.3, config.dim)  # the smallest: every sign can be reached
    everywhere = np.arange(config.depth)

    def flow(damping: float | None) -> Vector:
        def velocity(flat: Vector) -> tuple[Vector, float]:
            w = flat.reshape(config.depth, -1)
            others = np.array([w[everywhere != k].prod(0) for k in everywhere])
            residual = y - x @ w.prod(0)
            kernel = (x * (others**2).sum(0)) @ x.T
            moved = others * (x.T @ _pushed(kernel, residual, damping))
            return moved.ravel(), float(np.abs(residual).max() / np.abs(y).max())

        end = _interpolated(velocity, start.ravel()).reshape(config.depth, -1)
        return np.asarray(end.prod(0))

    first = flow(None)
    gaps = [np.linalg.norm(flow(d) - first) / np.linalg.norm(first) for d in config.dampings]
    return {"gaps": np.array(gaps)}


@dataclass(frozen=True)
class Product:
    """Flows of one product of two matrices to an interpolant of some entries."""

    side: int
    observed: int
    dampings: tuple[float, ...]
    seed: int


def product_ends(config: Product) -> Result:
    """Return relative distances of the ends of natural flow to that of gradient flow."""
    source = np.random.default_rng(config.seed)
    m = config.side
    chosen = source.permutation(m * m)[: config.observed]
    y = source.standard_normal(config.observed)
    start = 0.7 * source.standard_normal((2, m, m))
    eye = np.eye(m)

    def flow(damping: float | None) -> Vector:
        def velocity(flat: Vector) -> tuple[Vector, float]:
            a, b = flat.reshape(2, m, m)
            jacobian = np.hstack([np.kron(eye, b.T), np.kron(a, eye)])[chosen]
            residual = y - (a @ b).ravel()[chosen]
            pushed = _pushed(jacobian @ jacobian.T, residual, damping)
            return jacobian.T @ pushed, float(np.abs(residual).max() / np.abs(y).max())

        a, b = _interpolated(velocity, start.ravel()).reshape(2, m, m)
        return np.asarray(a @ b)

    first = flow(None)
    gaps = [np.linalg.norm(flow(d) - first) / np.linalg.norm(first) for d in config.dampings]
    return {"gaps": np.array(gaps)}


@dataclass(frozen=True)
class Regression:
    """Linear regression with more features than samples."""

    samples: int
    features: int
    draws: int


def risks(config: Regression) -> Result:
    """Return excess risks of the interpolants of gradient descent and of population NGD.

    Inputs are N(0, Σ), the eigenvalues of Σ from 10 to 0.1. Gradient descent finds the shortest θ,
    natural gradient with the population Fisher Σ the shortest Σ^{1/2}θ. Truths are N(0, I), or
    misaligned N(0, Σ⁻¹), scaled to a signal of one; noise has variance one.
    """
    n, d = config.samples, config.features
    root = np.sqrt(np.logspace(1, -1, d))
    out: Any = np.empty((len(CASES), len(METRICS), config.draws))
    for draw in range(config.draws):
        source = np.random.default_rng(draw)
        z, g, noise = (source.standard_normal(s) for s in ((n, d), d, n))
        x = z * root
        signals = {
            "clean, isotropic": (_unit(g, root), 0 * noise),
            "clean, misaligned": (_unit(g / root, root), 0 * noise),
            "noise alone": (0 * g, noise),
            "noisy, misaligned": (_unit(g / root, root), noise),
        }
        shortest, white = np.linalg.pinv(x), np.linalg.pinv(z) / root[:, None]
        for row, (truth, added) in enumerate(signals.values()):
            y = x @ truth + added
            for column, inverse in enumerate((shortest, white)):
                error = root * (inverse @ y - truth)
                out[row, column, draw] = error @ error
    return {"risk": out}


def _unit(theta: Vector, root: Vector) -> Vector:
    """Return θ with θᵀΣθ = 1."""
    return np.asarray(theta / np.linalg.norm(root * theta))
