"""Class probabilities to full relative accuracy, and their covariance times a vector.

`torch.softmax` rounds the difference of two logits before its exponential, which gives small
probabilities a relative error of that difference times the rounding: 44 units at a gap of 88.
"""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual


def softmax(f: Tensor) -> Tensor:
    """Return p = e^f / Σ e^f along the rows of `f`, differentiable.

    Example:
        >>> softmax(torch.tensor([[0.0, -80.0]]))
        tensor([[1.0000e+00, 1.8049e-35]])
    """
    if has_tangent(f):
        return torch.softmax(f, 1)
    p: Tensor = _Softmax.apply(f)  # type: ignore[no-untyped-call]
    return p


def covary(p: Tensor, u: Tensor) -> Tensor:
    """Return (diag p − ppᵀ) u, entry i accurate relative to Σⱼ pᵢ pⱼ |uᵢ − uⱼ|.

    Entry i is pᵢ times the deviation of uᵢ from the mean Σ p u, which is at most Σⱼ pⱼ |uᵢ − uⱼ|.
    Deviations from other references may be larger, and cancel. So the mean comes first, from
    differences to the likeliest class, and then its rounding error.

    Example:
        >>> covary(torch.tensor([[0.5, 0.5]]), torch.tensor([[1.0, 0.0]]))
        tensor([[ 0.2500, -0.2500]])
    """
    reference = u.gather(1, p.argmax(1, keepdim=True))
    mean = reference + (p * (u - reference)).sum(1, keepdim=True)
    deviation = u - mean
    return p * (deviation - (p * deviation).sum(1, keepdim=True))


def exponentials(f: Tensor, top: Tensor) -> tuple[Tensor, Tensor]:
    """Return e^{f − s} and e^{top − s}, with a shift s of each row that avoids overflow.

    Logits of moderate size need no shift, and then no difference is rounded.

    Args:
        f: Logits, shape `(n, k)`.
        top: The largest of each row, shape `(n, 1)`.
    """
    largest = max(-float(f.amin()), float(top.max()))
    if largest <= 0.5 * math.log(torch.finfo(f.dtype).max):
        return f.exp(), top.exp()
    return _exp_difference(f, top), torch.ones_like(top)


def has_tangent(f: Tensor) -> bool:
    """Return whether forward-mode derivatives of `f` are being computed.

    Custom autograd functions return zero for the second of two nested ones, torch's own do not.
    """
    return unpack_dual(f).tangent is not None  # type: ignore[no-untyped-call]


def by_rows(
    function: Any, size: int, in_dims: tuple[int | None, ...], inputs: tuple[Tensor, ...]
) -> Any:
    """Apply a function of rows under `torch.vmap`, with the batch's rows stacked."""
    stacked = [
        x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)
        for x, dim in zip(inputs, in_dims, strict=True)
    ]
    found = function.apply(*(x.flatten(0, 1) for x in stacked))
    if isinstance(found, Tensor):
        return found.reshape(size, -1, *found.shape[1:]), 0
    return tuple(x.reshape(size, -1, *x.shape[1:]) for x in found), (0,) * len(found)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(f: Tensor) -> Tensor:
        e = exponentials(f, f.amax(1, keepdim=True))[0]
        return e.div_(e.sum(1, keepdim=True))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, *by: Tensor) -> Tensor:
        return covary(ctx.saved_tensors[0], by[0])

    @staticmethod
    def jvp(ctx: Any, *v: Tensor) -> Tensor:
        return covary(ctx.saved_tensors[0], v[0])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Tensor) -> Any:
        return by_rows(_Softmax, info.batch_size, in_dims, inputs)


def _exp_difference(a: Tensor, b: Tensor) -> Tensor:
    """Return e^{a − b} as accurately as if a − b were not rounded.

    The rounding error of a difference is a number of the same dtype, found exactly by Knuth's
    six operations.
    """
    difference = a - b
    shift = a - difference
    error = (difference + shift).neg_().add_(a).add_(shift.sub_(b))
    error.nan_to_num_(0.0)  # infinite logits, as of masked classes, have no rounding error
    e = difference.exp_()  # in place: fresh memory costs more than the arithmetic
    return e.addcmul_(e, error)
