"""The point of an optimal face that exponential penalties pick."""

import torch
from torch import Tensor

from natgrad.errors import ConvergenceError
from natgrad.limits._solvers.highs import widest
from natgrad.limits._solvers.polish import project


def centroid(a: Tensor, rows: Tensor, b: Tensor) -> tuple[Tensor, bool]:
    """Return the centroid of the face {A_B b = 1, Ab ≥ 1}, and whether the face is that point.

    The smallest slack dominates the penalty Σ exp(−t (Ab)ₙ), then the next one (Cominetti and San
    Martín 1994). So maximize the smallest slack over the face, fix the rows that attain it (those
    with a multiplier), and continue with the others until one point is left. Each round removes at
    least one dimension.

    Args:
        a: Rows, full column rank.
        rows: Rows known to hold with equality on the whole face; further rows may hold too.
        b: A point of the face.

    Raises:
        ConvergenceError: If a round's linear program has no optimum.
    """
    held, unique = rows, True
    for _ in range(a.shape[1]):
        free = _null(a[held])
        g = a @ free
        moving = ~held & (g.norm(dim=1) > 1e-9 * a.norm(dim=1))
        if free.shape[1] == 0 or not bool(moving.any()):
            return b, unique
        answer = widest((a @ b - 1)[moving], g[moving])
        if answer is None:
            raise ConvergenceError(
                "the optimal face of the linear program has no centroid to within rounding. "
                "Rescale features to comparable sizes."
            )
        z, multipliers = answer
        b = b + free @ z
        tight = torch.zeros_like(held)
        tight[moving] = multipliers > 1e-9
        held = held | tight
        unique = unique and float((a @ b - 1)[moving].min()) < 1e-9
    return b, unique


def descend_face(a: Tensor, c: Tensor, b: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return a point of the face {A_B b = 1, Ab ≥ 1} with the lowest cost c·b, and its tight rows.

    An interior-point method that stops at a small gap may miss a tight row whose slack is small.
    The cost then still decreases along the face. Each step follows this decrease to the next row.

    Args:
        a: Rows, full column rank.
        c: Cost.
        b: A point near the face.
        rows: Rows that hold with equality.
    """
    b = project(a[rows], a.new_ones(int(rows.sum())), b)
    while int(rows.sum()) < a.shape[1]:
        free = _null(a[rows])
        downhill = -free @ (free.mT @ c)
        if float(downhill.norm()) <= 1e-10 * float(c.norm()):
            break  # the face is one of several optima
        pace = a @ downhill
        nearing = ~rows & (pace < -1e-12 * a.norm(dim=1) * downhill.norm())
        if not bool(nearing.any()):
            break
        steps = torch.where(nearing, (a @ b - 1).clamp(min=0) / -pace, torch.inf)
        met = int(steps.argmin())
        b = b + steps[met] * downhill
        rows = rows.clone()
        rows[met] = True
    return b, rows


def _null(a: Tensor) -> Tensor:
    """Return an orthonormal basis of the null space, as columns."""
    _, s, vh = torch.linalg.svd(a, full_matrices=True)
    rank = int((s > 1e-11 * max(float(s[0]), 1e-300)).sum()) if len(s) else 0
    basis: Tensor = vh[rank:].mT
    return basis
