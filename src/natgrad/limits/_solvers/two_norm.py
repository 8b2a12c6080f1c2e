"""The shortest b with Ab ≥ 1, and the gap that certifies any margin."""

import math

import torch
from torch import Tensor

from natgrad.limits._solvers.interior import interior_point
from natgrad.limits._solvers.polish import project
from natgrad.limits._solvers.programs import NonNegative, Rows
from natgrad.limits._solvers.scaling import balance


def margin_gap(a: Tensor, b: Tensor, lam: Tensor, p: float) -> tuple[float, float]:
    """Return the margin of b, and its relative distance from the bound that λ proves."""
    q = math.inf if p == 1 else p / (p - 1)
    length, total = float(torch.linalg.vector_norm(b, p)), float(lam.sum())
    if length == 0 or total <= 0 or not math.isfinite(length + total):
        return 0.0, math.inf
    margin = float((a @ b).min()) / length
    bound = float(torch.linalg.vector_norm(a.mT @ lam, q)) / total
    return margin, max(0.0, bound - margin) / (bound or 1.0)


def two_norm(a: Tensor, inside: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return b = argmin ½‖b‖² subject to Ab ≥ 1, and λ; their gap shows whether this succeeded.

    Args:
        a: Rows.
        inside: A b with Ab > 1 to start from, for hard data.
    """
    rows, h, norms, size = balance(a)
    if inside is None and len(a) <= a.shape[1]:
        last = interior_point(NonNegative(rows @ rows.mT, h))
        lam, active = last.x.clamp(min=0), ~last.active
        b = rows.mT @ lam
    else:
        near = None if inside is None else inside / size
        last = interior_point(Rows(rows, h, a.new_zeros(a.shape[1]), 1.0), inside=near)
        b, lam, active = last.x, last.z, last.active
    best = size * b, size * lam / norms
    return _active_set(a, active, best) if last.error < 1e-3 else best


def _active_set(a: Tensor, active: Tensor, best: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the solution on the active rows, corrected a few times, if it is better."""
    b, lam = best
    for _ in range(5):
        if not bool(active.any()):
            break
        b, lam = _on_active(a, active, lam)
        if margin_gap(a, b, lam.clamp(min=0), 2)[1] < max(1e-13, margin_gap(a, *best, 2)[1]):
            best = b, lam.clamp(min=0)
        broken = a @ b < 1 - 1e-12
        if not bool(((lam < 0) | broken).any()):
            break
        active = (active & (lam > 0)) | broken
    return best


def _on_active(a: Tensor, active: Tensor, lam: Tensor) -> tuple[Tensor, Tensor]:
    """Return the shortest b with A_B b = 1, and its multipliers next to λ."""
    rows = a[active]
    b = project(rows, torch.ones_like(rows[:, 0]), torch.zeros_like(rows[0]))
    inside = torch.zeros_like(lam)
    inside[active] = project(rows.mT, b, lam[active])
    return b, inside
