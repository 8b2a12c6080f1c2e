"""Natural directions from Jacobian rows, for any parametrization.

Every row is one contrast of one sample's outputs: an equation c·(J v) = b with weight e^{ℓ}.
"""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from natgrad.directions._routes.problem import Problem
from natgrad.errors import RankDeficientError
from natgrad.likelihoods import Root
from natgrad.linalg import graded_fisher_solve
from natgrad.linalg._columns import column_exponents, times_power
from natgrad.linalg._graded import MILD_SPREAD, bare_graded_lstsq
from natgrad.linalg._lstsq import bare_lstsq, condition, gram_inverse
from natgrad.linalg._precision import default_rtol, widen
from natgrad.parametrizations.base import Design, Linearization, P, combine

# A Gram matrix is tried if refinement can converge, and used if it does.
_SAFE = 0.1
_REFINEMENTS = 20


def solve_over_batch(problem: Problem[P]) -> P:
    """Return v with the Fisher of the batch's own inputs: least squares on its rows."""

    def rank() -> int:
        return _by_design(problem, problem.parametrization.design(problem.params, problem.x))[1]

    rows = problem.white.target.numel()
    return _shared(problem, lambda layer: _solve_rows(problem, layer), rows, rank)


def solve_over_inputs(problem: Problem[P], fisher_x: Tensor, root: Root) -> P:
    """Return v with the Fisher averaged over inputs other than those of the gradient."""

    def solve(layer: int | None) -> tuple[P, int]:
        return _solve_sample(problem, fisher_x, root, layer)

    return _shared(problem, solve, root.log_weight.numel(), lambda: solve(None)[1])


def _shared(
    problem: Problem[P],
    solve: Callable[[int | None], tuple[P, int]],
    rows: int,
    full_rank: Callable[[], int],
) -> P:
    """Return the shortest solution, or the weighted sum of each layer's solution.

    A layer alone gives a natural direction only if its rows have the rank of all layers' rows.
    """
    if problem.shares is None:
        return solve(None)[0]
    parts, weights = [], []
    for layer, share in enumerate(problem.shares):
        if not share:
            continue
        v, rank = solve(layer)
        if not problem.damping and rank < rows and rank < (needed := full_rank()):
            raise RankDeficientError(
                f"this selection lets layer {layer + 1} move the outputs alone, but its Jacobian "
                f"has rank {rank} where all layers together have {needed}. Try "
                "selection='min_norm', LayerShares on another layer, or a positive damping."
            )
        parts.append(v)
        weights.append(share)
    return combine(parts, weights)


def _solve_rows(problem: Problem[P], layer: int | None) -> tuple[P, int]:
    """Return the solution of one layer (or all) and the rank of its rows."""
    model, params, x = problem.parametrization, problem.params, problem.x
    at = model.linearized(params, x, layer)
    if model.prefers_gram(params, x):
        v = _by_kernel(problem, layer, at)
        if v is not None:
            return v, problem.white.target.numel()
    return _by_design(problem, model.design(params, x, layer) if at is None else at.design())


def _by_design(problem: Problem[P], design: Design) -> tuple[P, int]:
    """Solve on rows A with graded weights; damping adds rows √λ I with target 0."""
    white = problem.white
    a = white.apply(design.matrix).flatten(0, 1)
    b, ell = white.target.flatten(), white.log_weight.flatten()
    if not problem.damping:
        fit = bare_graded_lstsq(a, b, ell)
        return design.expand(fit.solution), fit.rank
    basis, exponents = None, column_exponents(a)
    if exponents is not None:  # z = 2^e v: the added rows are 2^{−e} √λ
        a = times_power(a, -exponents)
    elif a.shape[0] < a.shape[1]:  # the damped solution lies in the span of the rows
        basis, r = torch.linalg.qr(a.mT)
        a = r.mT
    p = a.shape[1]
    extra = torch.eye(p, dtype=a.dtype, device=a.device)
    damped = widen(ell.new_full((p,), 0.5 * math.log(problem.sum_damping)))
    if exponents is not None:
        damped = damped - math.log(2) * exponents.to(damped.device)
    fit = bare_graded_lstsq(
        torch.cat([a, extra]),
        torch.cat([b, b.new_zeros(p)]),
        torch.cat([widen(ell), damped]),
    )
    z = fit.solution if basis is None else basis @ fit.solution
    return design.expand(z if exponents is None else times_power(z, -exponents)), fit.rank


def _by_kernel(problem: Problem[P], layer: int | None, at: Linearization | None) -> P | None:
    """Solve on K = C J Jᵀ Cᵀ if that is safe; None if rows are (nearly) dependent.

    Without damping independent rows can all be met, so weights cancel and are not used. The
    residual is measured with true Jacobian products, so refinement undoes what forming K lost.
    """
    white, model, x = problem.white, problem.parametrization, problem.x
    damping = problem.sum_damping
    gram = model.gram(problem.params, x, x, layer) if at is None else at.gram()
    kernel = contract(gram, white, white)
    b = white.target.flatten()
    weight = torch.ones_like(b)
    if damping:
        weight = torch.exp(white.log_weight.flatten())
        kernel = weight[:, None] * kernel * weight[None, :]
        kernel.diagonal().add_(damping)
    inverse = gram_inverse(kernel)
    if inverse is None or condition(kernel, inverse) > _SAFE / torch.finfo(b.dtype).eps:
        return None

    def push(v: P) -> Tensor:
        return model.jvp(problem.params, x, v) if at is None else at.push(v)

    def pull(z: Tensor) -> P:
        if at is not None:
            return cast(P, at.pull(white.transpose((weight * z).reshape(white.target.shape))))
        v = problem.pull(weight * z)
        return v if layer is None else model.restrict(v, layer)

    eps, size = torch.finfo(b.dtype).eps, float((weight * b).abs().max())
    z = inverse @ (weight * b)
    v, error = pull(z), math.inf
    for _ in range(_REFINEMENTS):
        moved = white.apply(push(v).reshape(len(x), -1)).flatten()
        residual = weight * (b - moved) - damping * z
        previous, error = error, float(residual.abs().max())
        if error <= 32 * eps * size or error > 0.5 * previous:
            break
        z = z + inverse @ residual
        v = pull(z)
    return v if error <= 1e3 * eps * size else None


def _solve_sample(
    problem: Problem[P], fisher_x: Tensor, root: Root, layer: int | None
) -> tuple[P, int]:
    """Return −F⁺∇L (or −(F + λ)⁻¹∇L) of one layer or all, and the rank of F."""
    model, white = problem.parametrization, problem.white
    design = model.design(problem.params, fisher_x, layer)
    a = root.apply(design.matrix).flatten(0, 1)
    ell = root.log_weight.flatten() - 0.5 * math.log(len(fisher_x))
    g_ell = white.log_weight.flatten() - 0.5 * math.log(len(problem.x))
    b, damping = white.target.flatten(), problem.mean_damping
    top = float(ell.max())
    mild = float(ell.min()) > top - MILD_SPREAD and abs(float(g_ell.max()) - top) < 40
    if mild or damping:
        shift = 0.0 if damping else top
        descent = problem.pull(torch.exp(2 * (g_ell - shift)) * b)
        descent = descent if layer is None else model.restrict(descent, layer)
        weighted = torch.exp(ell - shift)[:, None] * a
        z, rank = normal_solve(weighted, design.compress(descent), damping)
        return design.expand(z), rank
    rows = white.apply(model.design(problem.params, problem.x, layer).matrix).flatten(0, 1)
    fit = graded_fisher_solve(a, ell, rows, g_ell, b)
    return design.expand(fit.solution), fit.rank


def contract(gram: Tensor, left: Root, right: Root) -> Tensor:
    """Return Cₗ G Cᵣᵀ as a matrix, from G of shape `(n, k, m, k)`."""
    n, k, m, j = gram.shape
    half = left.apply(gram.reshape(n, k, m * j))  # (n, r, m j)
    r = half.shape[1]
    if right.contrast is not None:
        contrast = right.contrast.expand(m, -1, -1)
        half = torch.einsum("xmj,mqj->xmq", half.reshape(n * r, m, j), contrast)
    return half.reshape(n * r, -1)


def normal_solve(a: Tensor, d: Tensor, damping: float = 0.0) -> tuple[Tensor, int]:
    """Return (aᵀa + λ)⁺ d, d of shape `(p,)` or `(p, k)`, and the rank of a.

    By Cholesky and refinement if that is safe, else by singular values. Columns are scaled to
    one size first, so that the rank does not depend on the units of a feature.
    """
    exponents = column_exponents(a)
    if exponents is None:
        return _normal_solve(a, d, damping)
    if damping:
        a = torch.cat([a, damping**0.5 * torch.eye(a.shape[1], dtype=a.dtype, device=a.device)])
        exponents = column_exponents(a)
    if exponents is None:
        return _normal_solve(a, d, 0.0)
    shift = -exponents if d.ndim == 1 else -exponents[:, None]
    unit = times_power(a, -exponents)
    z, rank = _normal_solve(unit, times_power(d, shift), 0.0)
    if rank == a.shape[1]:
        return times_power(z, shift), rank
    # (aᵀa)⁺ = a⁺ (a⁺)ᵀ; the second is least squares on the columns of a as rows of weight 2^e.
    columns, ell = d.reshape(len(d), -1), math.log(2) * exponents
    pulled = [
        bare_graded_lstsq(unit.mT, times_power(c, -exponents), ell).solution for c in columns.mT
    ]
    return bare_lstsq(a, torch.stack(pulled, 1)).solution.reshape(d.shape), rank


def _normal_solve(a: Tensor, d: Tensor, damping: float) -> tuple[Tensor, int]:
    """Return (aᵀa + λ)⁺ d and the rank of a, for columns of comparable sizes."""
    if a.shape[0] >= a.shape[1]:
        gram = a.mT @ a
        gram.diagonal().add_(damping)
        inverse = gram_inverse(gram)
        if inverse is not None and condition(gram, inverse) < 1e-5 / torch.finfo(a.dtype).eps:
            z = torch.zeros_like(d)
            for _ in range(4):
                z = z + inverse @ (d - a.mT @ (a @ z) - damping * z)
            return z, a.shape[1]
    _, s, vh = torch.linalg.svd(a, full_matrices=False)
    rank = int((s > default_rtol(*a.shape, dtype=a.dtype) * s[0]).sum())
    s, vh = s[:rank], vh[:rank]
    along = vh @ d
    scale = (s**2 + damping).reshape(-1, *[1] * (d.ndim - 1))
    inside: Tensor = vh.mT @ (along / scale)
    return (inside + (d - vh.mT @ along) / damping if damping else inside), rank
