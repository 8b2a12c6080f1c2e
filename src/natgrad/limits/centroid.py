"""The point of an optimal face that exponential penalties pick."""

import torch
from torch import Tensor

from natgrad.errors import ConvergenceError
from natgrad.limits.highs import widest


def centroid(a: Tensor, rows: Tensor, b: Tensor) -> tuple[Tensor, bool]:
    """Return the centroid of the face {A_B b = 1, Ab ≥ 1}, and whether the face is that point.

    Cominetti and San Martín 1994: the penalty Σ exp(−t (Ab)ₙ) is ruled by the smallest slack, then
    by the next. So maximise the smallest slack over the face, hold the rows that attain it (those
    with a multiplier), and go on with the others until one point is left. Each round removes at
    least one dimension.

    Args:
        a: Rows, full column rank.
        rows: Rows known to hold with equality on the whole face; others may.
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


def _null(a: Tensor) -> Tensor:
    """Return an orthonormal basis of the null space, as columns."""
    _, s, vh = torch.linalg.svd(a, full_matrices=True)
    rank = int((s > 1e-11 * max(float(s[0]), 1e-300)).sum()) if len(s) else 0
    basis: Tensor = vh[rank:].mT
    return basis
