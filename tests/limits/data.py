"""Data of every kind, and the natural flow itself as a judge of its limit."""

import torch
from torch import Tensor

from tests.helpers import F64, generator, randn


def separable(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Gaussian inputs labeled by a sparse separator."""
    x = randn(n, d, seed=seed)
    truth = torch.zeros(d, dtype=F64)
    truth[: max(1, d // 5)] = 1
    return x, torch.sign(x @ truth)


def not_separable(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    x, y = separable(n, d, seed)
    y[: n // 3] *= -1
    return x, y


def quasi(n: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Six rows that use only the last two features and cancel, then n separable rows."""
    x, y = separable(n, d, seed)
    pairs = torch.cat([torch.zeros(3, d - 2, dtype=F64), randn(3, 2, seed=seed + 1)], dim=1)
    return torch.cat([pairs, -pairs, x]), torch.cat([torch.ones(6, dtype=F64), y])


def deficient(n: int, d: int, rank: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Separable inputs that span a subspace."""
    z, y = separable(n, rank, seed)
    return z @ randn(rank, d, seed=seed + 1), y


def signed(x: Tensor, y: Tensor) -> Tensor:
    return y[:, None] * x


def newton_flow(a: Tensor, beta0: Tensor, time: float, step: float = 0.05) -> Tensor:
    """β(t) of natural flow: Aᵀσ(−Aβ) = e^{−t} c, followed by Newton's method in the row space."""
    beta, t = beta0.clone(), 0.0
    c = a.mT @ torch.sigmoid(-a @ beta)
    while t < time - 1e-9:
        t += step
        for _ in range(4):
            u = a @ beta
            defect = a.mT @ torch.sigmoid(-u) - torch.exp(torch.tensor(-t, dtype=F64)) * c
            weights = torch.sigmoid(u) * torch.sigmoid(-u)
            fisher = a.mT @ (weights[:, None] * a)
            beta = beta + torch.linalg.pinv(fisher, rtol=1e-13, hermitian=True) @ defect
    return beta


def flow_direction(a: Tensor, beta0: Tensor, early: float, late: float) -> Tensor:
    """The velocity of β(t) between two late times, free of the O(1) part of β(t) = t b + O(1)."""
    start = newton_flow(a, beta0, early)
    return (newton_flow(a, beta0, late) - start) / (late - early)


def shuffled(x: Tensor, y: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(len(x), generator=generator(seed))
    return x[order], y[order]
