"""Weighted ℓ1 programs, min Σ ωⱼ|bⱼ| subject to Ab ≥ 1 or Ab = f, solved to the vertex."""

import torch
from torch import Tensor

from natgrad.limits._solvers.interior import interior_point
from natgrad.limits._solvers.polish import project
from natgrad.limits._solvers.programs import OneNorm, OneNormDual
from natgrad.limits._solvers.scaling import balance


def one_norm(
    a: Tensor, weights: Tensor | None = None, inside: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return b = argmin Σ ωⱼ|bⱼ| subject to Ab ≥ 1, and multipliers λ ≥ 0.

    The interior-point method works on the shorter side of A and finds the supports of b and λ. They
    give the vertex by two linear systems, A_{BJ} b_J = 1 and A_{BJ}ᵀ λ_B = ±ω_J.

    Args:
        a: Rows.
        weights: ω > 0; default ones.
        inside: A b with Ab > 1 to start from, for hard data.
    """
    n, d = a.shape
    weights = a.new_ones(d) if weights is None else weights
    unit, h, norms, size = balance(a)
    if inside is None and n <= d:
        last = interior_point(OneNormDual(unit, h, weights, signed=True))
        rows, support = ~last.active[2 * d :], last.active[:d] | last.active[d : 2 * d]
        b, lam = last.z[:d] - last.z[d : 2 * d], last.x
    else:
        near = None if inside is None else _halves(inside / size)
        last = interior_point(OneNorm(unit, h, weights), inside=near)
        rows, zero = last.active[:n], last.active[n:]
        b, lam = last.x[:d] - last.x[d:], last.z[:n]
        support = ~(zero[:d] & zero[d:])
    b, lam = size * b, lam.clamp(min=0) / norms
    if not last.error < 1e-3 or not bool(support.any() and rows.any()):
        return b, lam
    return _vertex(a, a.new_ones(n), weights, (b, lam), (rows, support), signed=True)


def _halves(b: Tensor) -> Tensor:
    """Return (u, v) > 0 with u − v = b."""
    floor = 0.1 * float(b.abs().mean())
    return torch.cat([b.clamp(min=0), (-b).clamp(min=0)]) + floor


def one_norm_equal(a: Tensor, f: Tensor) -> tuple[Tensor, Tensor]:
    """Return b = argmin Σ|bⱼ| subject to Ab = f, and x with |Aᵀx| ≤ 1; A of full row rank."""
    d = a.shape[1]
    weights = a.new_ones(d)
    last = interior_point(OneNormDual(a, f, weights, signed=False))
    b, x = last.z[:d] - last.z[d:], last.x
    support = last.active[:d] | last.active[d:]
    if not last.error < 1e-3 or not bool(support.any()):
        return b, x
    rows = torch.ones(len(a), dtype=torch.bool)
    return _vertex(a, f, weights, (b, x), (rows, support), signed=False)


def _vertex(
    a: Tensor,
    f: Tensor,
    weights: Tensor,
    near: tuple[Tensor, Tensor],
    active: tuple[Tensor, Tensor],
    *,
    signed: bool,
) -> tuple[Tensor, Tensor]:
    """Return the pair corrected on the rows and columns in use, if it stays a solution."""
    (b, lam), (rows, support) = near, active
    inner = a[rows][:, support]
    vertex, multipliers = torch.zeros_like(b), torch.zeros_like(lam)
    vertex[support] = project(inner, f[rows], b[support])
    multipliers[rows] = project(inner.mT, b[support].sign() * weights[support], lam[rows])
    slack = a @ vertex - f
    kept = (
        bool((vertex.sign() == b.sign())[support].all())
        and float((slack if signed else -slack.abs()).min()) >= -1e-9 * float(f.abs().max())
        and not (signed and float(multipliers.min()) < -1e-12 * float(multipliers.abs().max()))
        and float((vertex - b).norm()) <= 1e-3 * float(b.norm())
    )
    if not kept:
        return b, lam
    return vertex, multipliers.clamp(min=0) if signed else multipliers
