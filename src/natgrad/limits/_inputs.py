"""Checks of the arguments of the limits, and their conversion to float64 on the CPU."""

import torch
from torch import Tensor

from natgrad._checks import dense, integer, tensor
from natgrad.errors import DeviceError, DtypeError, LabelError, ShapeError
from natgrad.linalg._lstsq import condition, gram_inverse, require_finite
from natgrad.linalg._precision import default_rtol, widen


def check_design(x: Tensor) -> Tensor:
    """Return X as float64 on the CPU; raise unless it is a finite matrix `(n, d)`."""
    tensor(x, "X", finite=False, empty=True)
    if x.ndim != 2 or 0 in x.shape:
        raise ShapeError(
            f"X must have shape (n, d) with at least one row and column, but has {tuple(x.shape)}."
        )
    require_finite(x, "X")
    return widen(x.detach()).cpu()


def check_targets(y: Tensor, x: Tensor, name: str = "y") -> Tensor:
    """Return real targets `(n,)`, one per row of X, as float64 on the CPU."""
    if isinstance(y, Tensor) and y.device != x.device:
        raise DeviceError(f"X is on {x.device} but {name} on {y.device}; move one with .to().")
    if dense(y, name).is_complex():
        raise DtypeError(f"{name} must be a real torch.Tensor, but is {y.dtype}.")
    if y.ndim != 1 or len(y) != len(x):
        raise ShapeError(
            f"{name} must have shape ({len(x)},), one per row of X, but has {tuple(y.shape)}."
        )
    return widen(y.detach()).cpu()


def signed_rows(x: Tensor, y: Tensor) -> Tensor:
    """Return X̃, rows yₙ xₙ, as float64 on the CPU; raise unless y holds −1 and +1 only."""
    rows, labels = check_design(x), check_targets(y, x)
    wrong = labels[labels.abs() != 1]
    if len(wrong):
        hint = " For labels 0 and 1 pass 2 * y - 1." if bool((labels >= 0).all()) else ""
        raise LabelError(f"labels must be −1 or +1, but one is {wrong[0].item():g}.{hint}")
    return labels[:, None] * rows


def check_start(beta0: Tensor, x: Tensor) -> Tensor:
    """Return β₀ as float64 on the CPU; raise unless it is finite, shape `(d,)`."""
    tensor(beta0, "beta0", finite=False, empty=True)
    if beta0.shape != x.shape[1:]:
        raise ShapeError(f"beta0 must have shape ({x.shape[1]},), but has {tuple(beta0.shape)}.")
    require_finite(beta0, "beta0")
    return widen(beta0.detach()).cpu()


def rank_and_basis(a: Tensor) -> tuple[int, Tensor | None]:
    """Return the rank, and an orthonormal basis `(d, r)` of the row space if r < min(n, d).

    A well-conditioned Gram matrix proves full rank at a fraction of the cost of the singular value
    decomposition that decides all other cases. float32 data are rounded: rows that were dependent
    before rounding are not dependent after it, and count as independent.
    """
    if 0 in a.shape:
        return 0, None
    short = (a if len(a) >= a.shape[1] else a.mT).numpy()
    gram = torch.from_numpy(short.T @ short)
    size = float(gram.diagonal().max())
    if size > 0:
        inverse = gram_inverse(gram / size)
        if inverse is not None and condition(gram / size, inverse) < 1e11:
            return min(a.shape), None
    _, s, vh = torch.linalg.svd(a, full_matrices=False)
    cut = default_rtol(*a.shape, dtype=a.dtype) * float(s[0])
    rank = int((s > cut).sum())
    return rank, None if rank == min(a.shape) else vh[:rank].mT.contiguous()


def check_classes(labels: Tensor, x: Tensor, classes: int | None = None) -> tuple[Tensor, int]:
    """Return labels as int64 on the CPU, and the number of classes; raise unless they fit X."""
    dense(labels, "labels")
    if labels.device != x.device:
        raise DeviceError(f"X is on {x.device} but labels on {labels.device}; move one with .to().")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise DtypeError(f"labels must be integer classes, but are {labels.dtype}; try y.long().")
    if labels.ndim != 1 or len(labels) != len(x):
        raise ShapeError(
            f"labels must have shape ({len(x)},), one per row of X, but have {tuple(labels.shape)}."
        )
    low, high = int(labels.min()), int(labels.max())
    k = max(2, high + 1) if classes is None else integer(classes, "classes", low=2)
    if low < 0 or high >= k:
        raise LabelError(f"labels must lie in 0…{k - 1}, but range from {low} to {high}.")
    return labels.long().cpu(), k


def class_rows(x: Tensor, labels: Tensor, classes: int | None = None) -> tuple[Tensor, Tensor, int]:
    """Return the rows (e_y − e_c) xₙᵀ, flattened, for every wrong class c of every sample.

    Returns:
        Rows `(n (k − 1), k d)` in float64 on the CPU; where the pairs (n, c) are among all,
        bool `(n, k)`; and k.
    """
    rows = check_design(x)
    y, k = check_classes(labels, x, classes)
    n, d = rows.shape
    wrong = torch.ones(n, k, dtype=torch.bool)
    wrong[torch.arange(n), y] = False
    sample, other = wrong.nonzero().unbind(1)
    pairs = torch.zeros(len(sample), k, d, dtype=torch.float64)
    index = torch.arange(len(sample))
    pairs[index, y[sample]] = rows[sample]
    pairs[index, other] = -rows[sample]
    return pairs.reshape(len(sample), k * d), wrong, k
