"""Local minima of Σ|bⱼ|^p, 0 < p < 1, subject to Ab ≥ 1, by reweighted ℓ1."""

from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.limits._solvers.one_norm import one_norm
from natgrad.limits._solvers.two_norm import two_norm


@dataclass(frozen=True)
class Local:
    """The best of several local minima.

    Attributes:
        b: The solution, scaled so that min Ab = 1.
        lam: Multipliers, λ ≥ 0.
        residual: See `stationarity`.
        norms: ‖b‖_p from each start.
    """

    b: Tensor
    lam: Tensor
    residual: float
    norms: tuple[float, ...]


def quasi_norm(
    a: Tensor, p: float, starts: int, seed: int, inside: Tensor | None = None
) -> Local | None:
    """Return the best local minimum over the starts, or None if no feasible b was found.

    Args:
        a: Rows.
        p: Power, 0 < p < 1.
        starts: Number of starts.
        seed: Seed of the random starts.
        inside: A b with Ab > 1, for hard data.
    """
    d = a.shape[1]
    source = torch.Generator().manual_seed(seed)
    first = one_norm(a, inside=inside)[0]
    if not float((a @ first).min()) > 1 - 1e-6:
        return None
    found = []
    for k in range(max(1, starts)):
        if k == 0:
            b = first
        elif k == 1:
            b = two_norm(a, inside)[0]
        else:
            b = _solve(a, 0.2 + torch.rand(d, dtype=a.dtype, generator=source), first)[0]
        found.append(_descend(a, p, b))
    found.extend(_single(a, p))
    norms = tuple(float(b.abs().pow(p).sum() ** (1 / p)) for b, _ in found)
    b, lam = found[min(range(len(norms)), key=norms.__getitem__)]
    return Local(b, lam, stationarity(a, b, lam, p), norms)


def _single(a: Tensor, p: float) -> list[tuple[Tensor, Tensor]]:
    """Return the best b with one entry, a local minimum, if one column of A has one sign."""
    lowest, highest = a.amin(0), a.amax(0)
    margins = torch.maximum(lowest, -highest)
    j = int(margins.argmax())
    if not float(margins[j]) > 0:
        return []
    column = a[:, j]
    i = int(column.abs().argmin())
    b, lam = torch.zeros_like(a[0]), torch.zeros_like(column)
    b[j] = 1 / column[i]
    lam[i] = p * b[j].abs().pow(p)  # p|b|^{p−1} sign b = aᵢⱼ λᵢ
    return [(b, lam)]


def stationarity(a: Tensor, b: Tensor, lam: Tensor, p: float) -> float:
    """Return how far (b, λ) is from a stationary point, relative.

    This is the largest of the residuals of p|bⱼ|^{p−1} sign bⱼ = (Aᵀλ)ⱼ on the support of b, of
    Ab ≥ 1, of λ ≥ 0 and of λ·(Ab − 1) = 0. Coordinates at zero are free, because the slope is
    infinite there.
    """
    support = b != 0
    slope = p * b[support].abs().pow(p - 1) * b[support].sign()
    scale, slack = float(slope.abs().max()), a @ b - 1
    return max(
        float((a[:, support].mT @ lam - slope).abs().max()) / scale,
        max(0.0, -float(slack.min())),
        max(0.0, -float(lam.min())) / (float(lam.max()) or 1.0),
        float((lam * slack).abs().max()) / (float(lam.max()) or 1.0),
    )


def _descend(a: Tensor, p: float, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a fixed point of b ← argmin Σ p|bⱼ|^{p−1}|·| : first smoothed, then on the support."""
    size = float(b.abs().max())
    for smoothing in (0.3, 0.03, 3e-3):
        weights = (b.abs() / size + smoothing).pow(p - 1)
        b, lam = _weighted(a, weights, b)
    for _ in range(50):
        support = b.abs() > 1e-9 * float(b.abs().max())
        weights = p * b[support].abs().pow(p - 1)
        inner, lam = _solve(a[:, support], weights, b[support])
        before, b = b, torch.zeros_like(b)
        b[support] = inner / min(1.0, float((a[:, support] @ inner).min()))
        if float((b - before).abs().max()) <= 1e-13 * float(b.abs().max()):
            break
    b[b.abs() <= 1e-9 * float(b.abs().max())] = 0
    return b, lam


def _weighted(a: Tensor, weights: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Solve weighted ℓ1 on the columns in use, then add those that violate a dual constraint."""
    columns = b.abs() > 1e-9 * float(b.abs().max())
    for _ in range(20):
        inner, lam = _solve(a[:, columns], weights[columns], b[columns])
        broken = (a.mT @ lam).abs() > weights * (1 + 1e-9)
        if not bool((broken & ~columns).any()):
            break
        columns = columns | broken
    out = torch.zeros_like(b)
    out[columns] = inner
    return out, lam


def _solve(a: Tensor, weights: Tensor, feasible: Tensor) -> tuple[Tensor, Tensor]:
    """Solve weighted ℓ1; if the usual start fails, start from the given feasible point."""
    b, lam = one_norm(a, weights)
    broken = (a.mT @ lam).abs() > weights * (1 + 1e-7)
    if float((a @ b).min()) < 1 - 1e-7 or bool(broken.any()):
        inside = 2 * feasible / float((a @ feasible).min())
        return one_norm(a, weights, inside)
    return b, lam
