"""The last digits of an interior-point solution, by corrections on its tight constraints."""

import torch
from torch import Tensor

from natgrad.linalg import lstsq


def project(a: Tensor, target: Tensor, x: Tensor) -> Tensor:
    """Return the point nearest to x with Ax = target (in the least-squares sense)."""
    residual = target - a @ x
    if a.shape[0] == a.shape[1]:
        factor, pivots, info = torch.linalg.lu_factor_ex(a)
        if not int(info):
            step = torch.linalg.lu_solve(factor, pivots, residual[:, None])[:, 0]
            left = residual - a @ step
            step = step + torch.linalg.lu_solve(factor, pivots, left[:, None])[:, 0]
            if float((residual - a @ step).abs().max()) <= 1e-12 * float(target.abs().max()):
                corrected: Tensor = x + step
                return corrected
    return x + lstsq(a, residual).solution
