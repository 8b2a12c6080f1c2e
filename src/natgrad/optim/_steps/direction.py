"""A direction in parameter space, block by block, and steps along it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.errors import NonFiniteError
from natgrad.optim._distributed import World

# The longest step up to which the decay of weights grows.
_LONG = 0.1


class Part:
    """One block of a direction.

    Args:
        params: The block's parameters.
        tensors: d, in the same order and shapes; a step is θ ← θ − αd.
        slope: gᵀd, where g is the gradient of the average loss from which d was computed.
        name: Name of the block.
        norm: ‖d‖ if lengths are learned; None if d keeps its own norm.
        unit: Factor on the damping in this block.
        owner: The process that holds the block's state; None for all.
        whole: The contiguous tensor whose parts `tensors` are, if there is one.

    Attributes:
        batch_slope: gᵀd with the gradient g of this batch; it differs from `slope` with `Momentum`.
        disturbed: Parameters whose last bits `nudged` may change.
    """

    def __init__(
        self,
        params: Sequence[Tensor],
        tensors: Sequence[Tensor],
        slope: float,
        *,
        name: str = "",
        norm: float | None = None,
        unit: float = 1.0,
        owner: int | None = None,
        whole: Tensor | None = None,
    ) -> None:
        self.params, self.tensors = list(params), list(tensors)
        self.name, self.norm, self.unit, self.owner = name, norm, unit, owner
        self._all = self.tensors if whole is None else [whole]
        self.slope = self.batch_slope = slope
        self.disturbed = self.params

    def move(self, length: float) -> None:
        """Step θ ← θ − length · d."""
        torch._foreach_add_(self.params, self.tensors, alpha=-length)

    @contextmanager
    def nudged(self, length: float) -> Iterator[None]:
        """Have the model run as at θ − length · d inside a `with` block."""
        self.move(length)
        try:
            yield
        finally:
            self.move(-length)

    def square(self) -> float:
        """Return ‖d‖²."""
        return sum(float(n) * float(n) for n in torch._foreach_norm(self._all))

    def scale(self, share: float) -> None:
        """Multiply d by a number."""
        torch._foreach_mul_(self._all, share)
        self._scale_slopes(share)

    def _scale_slopes(self, share: float) -> None:
        self.slope *= share
        self.batch_slope *= share

    def shorten(self) -> None:
        """Round d to bfloat16 if it is in single precision: it is kept until the next step.

        The step is taken along the rounded d, so that it can be undone.
        """
        self.tensors = self._all = [d.to(shorter(d.dtype)) for d in self.tensors]

    def dense(self) -> list[Tensor]:
        """Return d in the shapes of the parameters."""
        return self.tensors


class OuterPart(Part):
    """A block whose direction is u vᵀ, stored as two vectors: the direction of a single sample.

    Args:
        module: The linear layer.
        params: Its weight, shape `(n_out, fan_in)`, and the bias if that is trained.
        u: Left vector, `(n_out,)`.
        v: Right vector, `(n_in,)`; the entry of the bias is last.
        slope: gᵀd.
        kind: Name, norm and unit, as for `Part`.
    """

    def __init__(
        self,
        module: Module,
        params: Sequence[Tensor],
        u: Tensor,
        v: Tensor,
        slope: float,
        **kind: Any,
    ) -> None:
        super().__init__(params, [], slope, **kind)
        self.module, self.u, self.v = module, u, v
        self.disturbed = []

    def move(self, length: float) -> None:
        """Step θ ← θ − length · u vᵀ."""
        fan_in = self.params[0].shape[1]
        self.params[0].addr_(self.u, self.v[:fan_in], alpha=-length)
        for bias in self.params[1:]:
            bias.addcmul_(self.u, self.v[fan_in], value=-length)

    @contextmanager
    def nudged(self, length: float) -> Iterator[None]:
        """Have the model run as at θ − length · u vᵀ; the layer's outputs move, not its weights."""
        fan_in = self.params[0].shape[1]
        v, bias = self.v[:fan_in], self.v[fan_in:]
        u = -length * self.u

        def shift(_: Module, inputs: Any, named: dict[str, Any], output: Tensor) -> Tensor:
            along = (inputs[0] if inputs else named["input"]) @ v + (bias if len(bias) else 0.0)
            return torch.addcmul(output, along[..., None], u)

        handle = self.module.register_forward_hook(shift, prepend=True, with_kwargs=True)
        try:
            yield
        finally:
            handle.remove()

    def shorten(self) -> None:
        """Do nothing: two vectors are short."""

    def square(self) -> float:
        """Return ‖u‖²‖v‖²."""
        return float(torch.dot(self.u, self.u)) * float(torch.dot(self.v, self.v))

    def scale(self, share: float) -> None:
        """Multiply d by a number."""
        self.u = self.u * share
        self._scale_slopes(share)

    def dense(self) -> list[Tensor]:
        """Return d in the shapes of the parameters."""
        fan_in = self.params[0].shape[1]
        weight = torch.outer(self.u, self.v[:fan_in])
        return [weight, *(self.u * self.v[fan_in] for _ in self.params[1:])]


class Direction:
    """A direction with one part per block; all parameters without factors form one block.

    Args:
        parts: The parts.

    Attributes:
        params: The parameters that move.
        disturbed: The parameters whose last bits `nudged` may change.
        depth: The number of blocks L, at least 1.
        slope: gᵀd, where g is the gradient from which d was computed.
        batch_slope: gᵀd, where g is the gradient of this batch.
        squares: ‖d‖² of each part.
        square: ‖d‖².
        damped: Σ unit ‖d‖² over parts.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self.squares = [part.square() for part in parts]
        self.depth = max(1, len(self.parts))
        self._sum_up()

    def _sum_up(self) -> None:
        self.params = [p for part in self.parts for p in part.params]
        self.disturbed = [p for part in self.parts for p in part.disturbed]
        self.slope: float = sum(part.slope for part in self.parts)
        self.batch_slope: float = sum(part.batch_slope for part in self.parts)
        self.square: float = sum(self.squares)
        pairs = zip(self.parts, self.squares, strict=True)
        self.damped: float = sum(part.unit * square for part, square in pairs)

    def require_finite(self, step: int, damping: float) -> None:
        """Raise if the direction has overflowed.

        Raises:
            NonFiniteError: If its slope is NaN or infinite.
        """
        if not math.isfinite(self.slope):
            raise NonFiniteError(
                f"the natural direction overflows at step {step} with damping {damping:.2e}. Raise "
                "the damping or its floor; the weights are untouched."
            )

    def possible(self, loss: float | None) -> dict[str, float]:
        """Return by block the largest ρ that its natural step can have, from the loss alone.

        With a block F of the Fisher its predicted decrease is gᵀF⁻¹g/2. The actual one is at most
        the loss.

        Args:
            loss: The loss, if it is a squared error; None for no bound.
        """
        return {
            part.name: math.inf if loss is None or part.slope <= 0 else 2 * loss / part.slope
            for part in self.parts
            if part.norm is not None
        }

    def meet(self, total: float) -> None:
        """Compute the slopes of this batch from `.grad`, if d comes from another gradient.

        Args:
            total: Divisor that turns `.grad` into the gradient of the average loss.
        """
        if not self.parts:
            return
        found = []
        for part in self.parts:
            pairs = [(p.grad, d) for p, d in zip(part.params, part.dense(), strict=True)]
            each = [(_wide(g) / total * _wide(d)).sum() for g, d in pairs if g is not None]
            found.append(torch.stack(each).sum())
        for part, slope in zip(self.parts, torch.stack(found).tolist(), strict=True):
            part.batch_slope = slope
        self._sum_up()

    def move(self, length: float) -> None:
        """Step θ ← θ − length · d."""
        for part in self.parts:
            part.move(length)

    @contextmanager
    def nudged(self, length: float) -> Iterator[None]:
        """Have the model run as at θ − length · d inside a `with` block."""
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.nudged(length))
            yield

    def rescale(self, shares: Sequence[float]) -> None:
        """Multiply every part by its share."""
        for i, (part, share) in enumerate(zip(self.parts, shares, strict=True)):
            part.scale(share)
            self.squares[i] *= share**2
        self._sum_up()

    def weigh(self, rates: Mapping[Tensor, float], total: float, world: World) -> None:
        """Multiply the direction of every parameter by its own rate.

        Args:
            rates: By parameter.
            total: Divisor that turns `.grad` into the gradient of the average loss.
            world: The processes; the owner of a part alone has the averages of its gradients.
        """
        for i, part in enumerate(self.parts):
            own = [rates[p] for p in part.params]
            if all(rate == own[0] for rate in own):
                if own[0] != 1:
                    part.scale(own[0])
                    self.squares[i] *= own[0] ** 2
                continue
            tensors = [d * rate for d, rate in zip(part.dense(), own, strict=True)]
            slope = sum(
                float((p.grad * d).sum()) / total
                for p, d in zip(part.params, tensors, strict=True)
                if p.grad is not None
            )
            slope = world.sum([slope * world.share(part.owner)])[0]
            kind = {"name": part.name, "norm": part.norm, "unit": part.unit, "owner": part.owner}
            self.parts[i] = Part(part.params, tensors, slope, **kind)  # type: ignore[arg-type]
            self.squares[i] = self.parts[i].square()
        self._sum_up()


class Backup:
    """A copy of the weights for undoing a step, in buffers that are reused.

    Args:
        params: The parameters.

    Example:
        >>> w = torch.zeros(1)
        >>> backup = Backup([w])
        >>> backup.save([w])
        >>> _ = w.fill_(3.0)
        >>> backup.restore([w])
        >>> w
        tensor([0.])
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self._place = {p: torch.empty_like(p) for p in params}

    def save(self, params: Sequence[Tensor]) -> None:
        """Copy parameters."""
        if params:
            torch._foreach_copy_([self._place[p] for p in params], list(params))

    def restore(self, params: Sequence[Tensor]) -> None:
        """Restore the saved weights."""
        if params:
            torch._foreach_copy_(list(params), [self._place[p] for p in params])


def rates(groups: Sequence[Mapping[str, Any]]) -> tuple[float, dict[Tensor, float] | None]:
    """Return the largest learning rate, and each parameter's rate divided by it.

    None means that all ratios are one.
    """
    largest = max(float(group["lr"]) for group in groups)
    if largest == 0 or all(float(group["lr"]) == largest for group in groups):
        return largest, None
    return largest, {p: float(g["lr"]) / largest for g in groups for p in g["params"]}


def shrinkage(
    groups: Sequence[Mapping[str, Any]], lengths: Mapping[Tensor, float] | None
) -> dict[Tensor, float]:
    """Return the factor by which weight decay multiplies each parameter after a step, as in AdamW.

    It is 1 − lr · weight_decay; with learned lengths 1 / (1 + weight_decay · min(s, 0.1)²), where
    s = lr · η is the length of the step. Steps along noise are a random walk, which lets weights
    grow by s² each, relative to the norm of a direction. Decay of the same order holds this off,
    and vanishes as steps do. Beyond s = 0.1 it does not grow: a decay leaves a slope, and so
    lengthens steps.

    Args:
        groups: Groups of parameters.
        lengths: Learned length of each parameter's step, for lr = 1; None if they are measured.
    """
    found = {}
    for group in groups:
        rate, amount = float(group["lr"]), float(group["weight_decay"])
        for p in group["params"] if rate and amount else ():
            if p.grad is None:
                continue
            if lengths is None:
                found[p] = 1 - amount * rate
            elif p in lengths:
                s = rate * lengths[p]
                found[p] = 1 / (1 + amount * min(s, _LONG) ** 2)
    return found


def shrink(factors: Mapping[Tensor, float]) -> None:
    """Multiply parameters by numbers."""
    if factors:
        torch._foreach_mul_(list(factors), list(factors.values()))


def shorter(dtype: torch.dtype) -> torch.dtype:
    """Return the precision in which a direction is kept: 8 bits of its 24 are enough.

    Example:
        >>> shorter(torch.float32), shorter(torch.float64)
        (torch.bfloat16, torch.float64)
    """
    return torch.bfloat16 if dtype == torch.float32 else dtype


def _wide(t: Tensor) -> Tensor:
    """Return a tensor in float32 or wider."""
    return t.to(torch.promote_types(t.dtype, torch.float32))
