"""Two functions, each the derivative of the other, and the tape on which they record.

A weight matrix W appears in networks as x ↦ x Wᵀ, and in derivatives as g ↦ g W. The derivative of
the first is the second and vice versa, however often a residual differentiates. In the last pass
backward, from the sum of all residuals, the row of sample n in W is Σ e xᵀ over the pairs (e, x)
that meet at W; recording them costs no more than that pass.
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import linear

__all__ = ["Pair", "Tape", "multiply"]

Phase = Literal["closure", "record", "gradient"]
"""What a backward pass is for: the residual itself, its rows, or a plain gradient."""

Pair = tuple[Tensor, Tensor, bool]
"""Errors `(n, s, out)`, inputs `(n, s, in)`, and whether the errors count for the bias."""


class Tape:
    """Pairs by layer, written by backward passes while the phase is `"record"`."""

    def __init__(self) -> None:
        self.phase: Phase = "closure"
        self.pairs: dict[int, list[Pair]] = {}

    def add(self, key: int, errors: Tensor, inputs: Tensor, bias: bool) -> None:
        """Keep a pair; axes between the first and the last are positions, which add up."""
        pair = (_three(errors.detach()), _three(inputs.detach()), bias)
        self.pairs.setdefault(key, []).append(pair)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None, tape: Tape, key: int) -> Tensor:
    """Return x Wᵀ + b, recorded on a tape under a key."""
    out: Tensor = _Product.apply(x, weight, bias, tape, key)  # type: ignore[no-untyped-call]
    return out


class _Product(Function):
    """The map x ↦ x Wᵀ + b."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, tape: Tape, key: int
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.tape, ctx.key, ctx.biased = tape, key, bias is not None
        return linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (g,) = grads
        x, weight = ctx.saved_tensors
        tape, key = ctx.tape, ctx.key
        gx = gw = gb = None
        if ctx.needs_input_grad[0]:
            gx = _transposed(g, weight, tape, key) if torch.is_grad_enabled() else g @ weight
        if tape.phase == "record":
            tape.add(key, g, x, ctx.biased)
        elif tape.phase == "gradient":
            gw = _outer(g, x)
            gb = g.flatten(0, -2).sum(0) if ctx.biased else None
        return gx, gw, gb, None, None


class _Transposed(Function):
    """The map g ↦ g W: the derivative of the product, differentiable in turn."""

    @staticmethod
    def forward(ctx: Any, g: Tensor, weight: Tensor, tape: Tape, key: int) -> Tensor:
        ctx.save_for_backward(g, weight)
        ctx.tape, ctx.key = tape, key
        return g @ weight

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (h,) = grads
        g, weight = ctx.saved_tensors
        tape, key = ctx.tape, ctx.key
        gg = gw = None
        if ctx.needs_input_grad[0]:
            recorded = torch.is_grad_enabled()
            gg = multiply(h, weight, None, tape, key) if recorded else linear(h, weight)
        if tape.phase == "record":
            tape.add(key, g, h, False)
        elif tape.phase == "gradient":
            gw = _outer(g, h)
        return gg, gw, None, None


def _transposed(g: Tensor, weight: Tensor, tape: Tape, key: int) -> Tensor:
    out: Tensor = _Transposed.apply(g, weight, tape, key)  # type: ignore[no-untyped-call]
    return out


def _outer(g: Tensor, x: Tensor) -> Tensor:
    return g.flatten(0, -2).mT @ x.flatten(0, -2)


def _three(t: Tensor) -> Tensor:
    return t.reshape(t.shape[0], -1, t.shape[-1])
