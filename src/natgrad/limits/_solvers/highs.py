"""HiGHS, through SciPy, for programs that our interior-point method does not solve."""

from typing import Any

import numpy as np
import torch
from torch import Tensor


def _solve(*arguments: Any, **options: Any) -> Any:
    from scipy.optimize import linprog  # imported here to keep `import natgrad` light

    return linprog(*arguments, **options)


def least_cost(a: Tensor, c: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return b and multipliers of min c·b subject to Ab ≥ 1, or None if there is no optimum."""
    answer = _solve(
        c.numpy(),
        A_ub=-a.numpy(),
        b_ub=-np.ones(len(a)),
        bounds=(None, None),
        method="highs",
    )
    if answer.status != 0:
        return None
    return torch.from_numpy(answer.x), torch.from_numpy(-answer.ineqlin.marginals)


def split(a: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return b, t and multipliers of max Σt subject to Ab ≥ t, 0 ≤ t ≤ 1, or None."""
    n, d = a.shape
    answer = _solve(
        np.concatenate([np.zeros(d), -np.ones(n)]),
        A_ub=np.hstack([-a.numpy(), np.eye(n)]),
        b_ub=np.zeros(n),
        bounds=[(None, None)] * d + [(0, 1)] * n,
        method="highs",
    )
    if answer.status != 0:
        return None
    x, lam = torch.from_numpy(answer.x), torch.from_numpy(-answer.ineqlin.marginals)
    return x[:d], x[d:], lam


def widest(slack: Tensor, g: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return z and multipliers of max τ subject to slack + Gz ≥ τ, or None."""
    m, k = g.shape
    answer = _solve(
        np.concatenate([np.zeros(k), [-1.0]]),
        A_ub=np.hstack([-g.numpy(), np.ones((m, 1))]),
        b_ub=slack.numpy(),
        bounds=(None, None),
        method="highs",
    )
    if answer.status != 0:
        return None
    return torch.from_numpy(answer.x[:k]), torch.from_numpy(-answer.ineqlin.marginals)
