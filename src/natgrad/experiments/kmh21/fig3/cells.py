"""Cells of Figure 3: how a matrix responds to one observation."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from natgrad.directions import euclidean, natural
from natgrad.directions._kernels import natural_ntk, ntk
from natgrad.experiments.kmh21.fig3.config import Fig3
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell
from natgrad.lab.experiment import Sweep
from natgrad.likelihoods import Gaussian
from natgrad.parametrizations import MatrixProduct

Factors = tuple[Tensor, ...]


def compute(config: Fig3, sweep: Sweep) -> Arrays:
    """Return Δβ per unit of step, by method, depth and seed."""
    asked = [
        Cell(
            responses,
            ResponseConfig(
                size=config.size,
                depth=depth,
                seed=seed,
                euclidean_step=config.euclidean_step,
                natural_step=config.natural_step,
            ),
            f"L={depth}, seed {seed}",
        )
        for depth in config.depths
        for seed in range(config.seeds)
    ]
    found = sweep(asked, "responses")
    arrays = Arrays(depth=config.depths, seed=range(config.seeds))
    for key in found[0]:
        values = np.stack([result[key] for result in found])
        inner = ("row", "column") if values.ndim == 3 else ()
        shape = (len(config.depths), config.seeds, *values.shape[1:])
        arrays.add(key, values.reshape(shape), "depth", "seed", *inner)
    return arrays


@dataclass(frozen=True, kw_only=True)
class ResponseConfig:
    """A product of Gaussian factors; its middle entry is observed one unit above its value."""

    size: int
    depth: int
    seed: int
    euclidean_step: float
    natural_step: float


def responses(config: ResponseConfig) -> dict[str, npt.NDArray[Any]]:
    """Return Δβ per unit of step for each method, and the residuals of the identities."""
    size, product = config.size, MatrixProduct(config.depth)
    generator = torch.Generator().manual_seed(config.seed)
    factors = product.init_gaussian((size, size), scale=1.0, generator=generator)
    beta, middle = product.hypothesis(factors), size // 2
    center = torch.tensor([[middle, middle]])
    everywhere = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    likelihood, batch = Gaussian(reduction="sum"), (center, beta[middle, middle][None] + 1)
    args = (likelihood, product, factors, batch)

    def moved(v: Factors, step: float) -> Tensor:
        after = product.hypothesis(tuple(w + step * d for w, d in zip(factors, v, strict=True)))
        return (after - beta) / step

    egf = ntk(product, factors, everywhere, center).reshape(size, size)
    ngf = natural_ntk(likelihood, product, factors, everywhere, center).reshape(size, size)
    share = natural(*args, selection="equal_share")
    shortest = natural(*args)
    ngd = moved(share, config.natural_step)
    judged, judged_natural = _by_autograd(product, factors, middle)
    half = moved(shortest, config.natural_step / 2)
    return {
        "egf": egf.numpy(),
        "egd": moved(euclidean(*args), config.euclidean_step).numpy(),
        "ngf": ngf.numpy(),
        "ngd": ngd.numpy(),
        "shortest": moved(shortest, config.natural_step).numpy(),
        "shortest_half": half.numpy(),
        "kernel_residual": np.asarray(_relative(egf, judged)),
        "natural_kernel_residual": np.asarray(_relative(ngf, judged_natural)),
        "direction_residual": np.asarray(_relative(product.push(factors, shortest), ngf)),
        "formula_residual": np.asarray(
            _relative(
                beta + config.natural_step * ngd,
                _formula(beta, middle, config.depth, config.natural_step),
            )
        ),
        "condition": np.asarray(float(torch.linalg.cond(beta))),
    }


def _by_autograd(product: MatrixProduct, factors: Factors, middle: int) -> tuple[Tensor, Tensor]:
    """Return columns of J Jᵀ and J F⁺ Jᵀ, F = JᵀJ, for the entry in the middle."""
    everything = tuple(range(len(factors)))
    rows = torch.func.jacrev(lambda *w: product.hypothesis(w), argnums=everything)(*factors)
    beta = product.hypothesis(factors)
    jacobian = torch.cat([row.reshape(beta.numel(), -1) for row in rows], dim=1)
    at = middle * beta.shape[1] + middle
    column = (jacobian @ jacobian[at]).reshape(beta.shape)
    # J F⁺ Jᵀ projects onto the range of J. The left singular vectors give it without forming F.
    u, s, _ = torch.linalg.svd(jacobian, full_matrices=False)
    u = u[:, s > 1e-12 * s[0]]
    return column, (u @ u[at]).reshape(beta.shape)


def _formula(beta: Tensor, middle: int, depth: int, step: float) -> Tensor:
    """Return β⁺ = β(I − (η/L) β⁻¹∇)^L, the exact equal-share step."""
    descent = torch.zeros_like(beta)
    descent[middle, middle] = 1.0
    eye = torch.eye(len(beta), dtype=beta.dtype)
    factor = eye + (step / depth) * torch.linalg.solve(beta, descent)
    after: Tensor = beta @ torch.linalg.matrix_power(factor, depth)
    return after


def _relative(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())
