"""A direction in the space of parameters, block by block."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.optim._layers.linear import wide


class Part:
    """One block of a direction.

    Args:
        params: The block's parameters.
        tensors: d, in the same order and shapes; a step is θ ← θ − αd.
        slope: gᵀd with g the gradient that d was made of, of the average loss.

    Attributes:
        batch_slope: gᵀd with g the gradient of this batch, which differs under `Momentum`.
        disturbed: Parameters that `nudged` leaves changed in their last bits.
    """

    def __init__(self, params: Sequence[Tensor], tensors: Sequence[Tensor], slope: float) -> None:
        self.params, self.tensors = list(params), list(tensors)
        self.slope = self.batch_slope = slope
        self.disturbed = self.params

    def move(self, length: float) -> None:
        """Step θ ← θ − length · d."""
        torch._foreach_add_(self.params, self.tensors, alpha=-length)

    @contextmanager
    def nudged(self, length: float) -> Iterator[None]:
        """Have the model run as at θ − length · d, for the time of a `with` block."""
        self.move(length)
        try:
            yield
        finally:
            self.move(-length)

    def square(self) -> float:
        """Return ‖d‖²."""
        return sum(float(n) * float(n) for n in torch._foreach_norm(self.tensors))

    def scale(self, share: float) -> None:
        """Multiply d by a number."""
        torch._foreach_mul_(self.tensors, share)
        self._scale_slopes(share)

    def _scale_slopes(self, share: float) -> None:
        self.slope *= share
        self.batch_slope *= share

    def dense(self) -> list[Tensor]:
        """Return d in the shapes of the parameters."""
        return self.tensors


class OuterPart(Part):
    """A block whose direction is u vᵀ, kept as two vectors: what a single datum leaves.

    Args:
        module: The linear layer.
        params: Its weight, shape `(n_out, fan_in)`, and the bias if that is trained.
        u: Left vector, `(n_out,)`.
        v: Right vector, `(n_in,)`, the bias's entry last.
        slope: gᵀd.
    """

    def __init__(
        self, module: Module, params: Sequence[Tensor], u: Tensor, v: Tensor, slope: float
    ) -> None:
        super().__init__(params, [], slope)
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
    """A direction with one part for each block; parameters without factors count as one block.

    Args:
        parts: The parts.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self.parts = list(parts)
        self.squares = [part.square() for part in parts]

    @property
    def params(self) -> list[Tensor]:
        """Return the parameters that move."""
        return [p for part in self.parts for p in part.params]

    @property
    def disturbed(self) -> list[Tensor]:
        """Return the parameters that `nudged` leaves changed in their last bits."""
        return [p for part in self.parts for p in part.disturbed]

    @property
    def depth(self) -> int:
        """Return the number of blocks L, at least 1."""
        return max(1, len(self.parts))

    @property
    def slope(self) -> float:
        """Return gᵀd with the gradient that d was made of."""
        return sum(part.slope for part in self.parts)

    @property
    def batch_slope(self) -> float:
        """Return gᵀd with the gradient of this batch."""
        return sum(part.batch_slope for part in self.parts)

    def meet(self, total: float) -> None:
        """Take the slopes of this batch from `.grad`, where the direction is of another gradient.

        Args:
            total: What `.grad` is divided by to be that of the average loss.
        """
        if not self.parts:
            return
        found = []
        for part in self.parts:
            pairs = [(p.grad, d) for p, d in zip(part.params, part.dense(), strict=True)]
            each = [(wide(g) / total * wide(d)).sum() for g, d in pairs if g is not None]
            found.append(torch.stack(each).sum())
        for part, slope in zip(self.parts, torch.stack(found).tolist(), strict=True):
            part.batch_slope = slope

    @property
    def square(self) -> float:
        """Return ‖d‖²."""
        return sum(self.squares)

    def move(self, length: float) -> None:
        """Step θ ← θ − length · d."""
        for part in self.parts:
            part.move(length)

    @contextmanager
    def nudged(self, length: float) -> Iterator[None]:
        """Have the model run as at θ − length · d, for the time of a `with` block."""
        with ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.nudged(length))
            yield

    def rescale(self, shares: Sequence[float]) -> None:
        """Multiply every part by its share."""
        for i, (part, share) in enumerate(zip(self.parts, shares, strict=True)):
            part.scale(share)
            self.squares[i] *= share**2

    def weigh(self, rates: Mapping[Tensor, float], total: float) -> None:
        """Multiply the direction of every parameter by its own rate.

        Args:
            rates: By parameter.
            total: What `.grad` is divided by to be that of the average loss.
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
            self.parts[i] = Part(part.params, tensors, slope)
            self.squares[i] = self.parts[i].square()
