"""Rows by plain automatic differentiation: exact for any graph, and slower.

Parameters with few numbers (coefficients of an equation) take one column at a time, everything
else one pass backward per row, in batches.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["BATCH", "by_columns", "slow_rows"]

# Rows whose passes run as one batch; memory grows with it, time hardly falls beyond.
BATCH = 64
# A column takes about as long as so many rows.
_COLUMN = 2


def by_columns(values: Tensor, params: Sequence[Tensor]) -> bool:
    """Return whether columns are cheaper than rows."""
    return sum(p.numel() for p in params) * _COLUMN <= len(values)


def slow_rows(values: Tensor, params: Sequence[Tensor]) -> list[Tensor]:
    """Return the Jacobian of values `(n,)` in each parameter, `(n, p)`; the graph is kept."""
    if by_columns(values, params):
        found = _columns(values, params)
        if found is not None:
            return found
    chunks: list[list[Tensor]] = [[] for _ in params]
    for start in range(0, len(values), BATCH):
        stop = min(start + BATCH, len(values))
        units = torch.zeros(stop - start, len(values), dtype=values.dtype, device=values.device)
        units[:, start:stop].fill_diagonal_(1.0)
        for chunk, grad in zip(chunks, _pull(values, params, units), strict=True):
            chunk.append(grad)
    return [torch.cat(chunk) for chunk in chunks]


def _pull(values: Tensor, params: Sequence[Tensor], units: Tensor) -> list[Tensor]:
    """Return Jᵀu for every row u of `units`, in one batch if all operations allow that."""
    options = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    try:
        grads = torch.autograd.grad(values, params, units, is_grads_batched=True, **options)
    except (RuntimeError, NotImplementedError):
        each = [torch.autograd.grad(values, params, unit, **options) for unit in units]
        grads = tuple(torch.stack(one) for one in zip(*each, strict=True))
    return [grad.reshape(len(units), -1) for grad in grads]


def _columns(values: Tensor, params: Sequence[Tensor]) -> list[Tensor] | None:
    """Return J column by column: Jᵀu is linear in u, so its own derivative in u is J.

    None if some operation on the way cannot be differentiated once more.
    """
    u = torch.zeros_like(values, requires_grad=True)
    try:
        pulled = torch.autograd.grad(
            values, params, u, create_graph=True, allow_unused=True, materialize_grads=True
        )
        return [_derivatives(grad, u) for grad in pulled]
    except RuntimeError:
        return None


def _derivatives(grad: Tensor, u: Tensor) -> Tensor:
    if not grad.requires_grad:
        return u.new_zeros(len(u), grad.numel())
    found = [
        torch.autograd.grad(entry, u, retain_graph=True, allow_unused=True, materialize_grads=True)
        for entry in grad.reshape(-1)
    ]
    return torch.stack([column for (column,) in found], 1).detach()
