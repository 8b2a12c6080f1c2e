"""Blocks without Kronecker factors: the diagonal of the Fisher, and plain gradient steps."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from natgrad._checks import ALL_FLOATS, tensor
from natgrad.optim._capture.batch import Batch, Call
from natgrad.optim._curvature.factor import MEMORY, Factor, Gram, average
from natgrad.optim._layers.linear import Layer, wide
from natgrad.optim._states import entries, real
from natgrad.optim._steps.direction import OuterPart

# Weight of the past in the average of squares, Adam's β₂; and Adam's ε.
_SQUARES, _TINY = 0.95, 1e-8


class PlainBlock:
    """A gradient step divided by tr F + λ, where F is the Fisher block of one parameter.

    No eigenvalue exceeds the trace, so the step never overshoots. The trace costs nothing: a
    gradient g = Σₙ gₙ at labels drawn from the model has E ‖g‖² = Σₙ E ‖gₙ‖² = N tr F.

    Args:
        param: The parameter.
        memory: How many past samples the trace remembers.
    """

    def __init__(self, param: Parameter, memory: float | None) -> None:
        self.param, self.memory = param, MEMORY if memory is None else memory
        self.trace: float | None = None
        self._past = self._damping = 0.0

    @property
    def known(self) -> bool:
        """Return whether the trace has been estimated."""
        return self.trace is not None

    @property
    def ready(self) -> bool:
        """Return whether there is a gradient to follow and a trace to divide it by."""
        return self.known and self.param.grad is not None

    def update(self, trace: float, n: float) -> None:
        """Add the trace estimated from n samples to the average."""
        old = trace if self.trace is None else self.trace
        self.trace = old + (trace - old) * n / (n + self._past)
        self._past = min(self._past + n, self.memory)

    def refresh(self, damping: float) -> None:
        """Take this damping."""
        self._damping = damping

    def direction(self, g: Tensor) -> Tensor:
        """Return g / (tr F + λ)."""
        assert self.trace is not None
        scale = self.trace + self._damping
        return g / scale if scale > 0 else 0 * g

    def state_dict(self) -> dict[str, Any]:
        """Return three numbers."""
        return {"trace": self.trace, "past": self._past, "damping": self._damping}

    def observe(self, total: float) -> None:
        """Do nothing: traces come with the factors."""

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, ("trace", "past", "damping"))
        real(state["damping"], f"{where}.damping", low=0)
        past = real(state["past"], f"{where}.past", low=0)
        if state["trace"] is not None or past:
            real(state["trace"], f"{where}.trace", low=0)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a checked state."""
        self.trace, self._past = state["trace"], state["past"]
        self._damping = state["damping"]


class AdamBlock:
    """Adam's step for one parameter: its gradient over the root of an average of squares.

    Replaces `PlainBlock` if lengths are learned: entries move by similar amounts, whatever their
    scale, and no Fisher is needed.

    Args:
        param: The parameter.
    """

    def __init__(self, param: Parameter) -> None:
        self.param = param
        self.squares: Tensor | None = None
        self._weight = 0.0

    @property
    def ready(self) -> bool:
        """Return whether there is a gradient to follow."""
        return self.squares is not None and self.param.grad is not None

    def observe(self, total: float) -> None:
        """Add the squares of `.grad`, which is `total` times the gradient of the average loss."""
        if self.param.grad is None or not total:
            return
        g = wide(self.param.grad) / total
        self._weight = _SQUARES * self._weight + 1
        if self.squares is None:
            self.squares = torch.zeros_like(g)
        self.squares.lerp_(g.square(), 1 / self._weight)

    def direction(self, g: Tensor) -> Tensor:
        """Return g / √v, entry by entry."""
        assert self.squares is not None
        return (g / (self.squares.sqrt() + _TINY)).to(g.dtype)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and its weight."""
        return {"squares": self.squares, "weight": self._weight}

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, ("squares", "weight"))
        weight = real(state["weight"], f"{where}.weight", low=0)
        if state["squares"] is not None or weight:
            shape = tuple(self.param.shape)
            tensor(state["squares"], f"{where}.squares", shape=shape, dtypes=ALL_FLOATS, empty=True)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a checked state."""
        self._weight, squares = state["weight"], state["squares"]
        like = wide(self.param)
        self.squares = None if squares is None else squares.to(like.device, like.dtype, copy=True)


class DiagonalBlock:
    """The diagonal of one layer's Fisher block, [BLH18] §6: average squares of its gradients.

    If a weight is used at several positions of one sample, each position counts separately.

    Args:
        layer: The layer.
        memory: How many past samples the average remembers.

    Attributes:
        mean: Mean of the diagonal at the last refresh.
    """

    def __init__(self, layer: Layer, *, memory: float | None) -> None:
        self.layer, self.squares = layer, Factor(memory)
        self._damping = self.mean = 0.0

    def wants(self, call: Call) -> bool:
        """Return whether a call has moments of this layer."""
        moments = call.moments.get(self.layer.name)
        return moments is not None and moments.squares is not None

    @property
    def known(self) -> bool:
        """Return whether the squares have been estimated."""
        return self.squares.known

    ready = known
    settled = False
    unit = 1.0

    def outer(self, x: Tensor, total: float, norms: Mapping[Tensor, float]) -> OuterPart | None:
        """Return None: a diagonal does not use the rank-one form of a single sample's gradient."""
        return None

    def update(self, batch: Batch, owner: int | None = None) -> None:
        """Add the squares of a batch to the average; `owner` says which process needs them."""
        self.absorb(self.gathered(batch, owner), n=batch.count)

    def gathered(self, batch: Batch, owner: int | None) -> Gram:
        """Return the average squares of a batch, for all processes or for their owner."""
        pairs = zip(batch.calls, batch.weights, strict=True)
        found = [(call.moments[self.layer.name], w) for call, w in pairs if self.wants(call)]
        seen = [Gram(total=moments.squares) for moments, _ in found]
        return average(seen, [w for _, w in found], batch.world, owner)

    def absorb(self, squares: Gram, *, n: float) -> None:
        """Add what `gathered` returned, of n samples, to the average."""
        self.squares.update(squares, n=n)

    def refresh(self, damping: float, *, relative: bool = False) -> None:
        """Set the damping, in units of the mean if it is relative."""
        assert self.squares.matrix is not None
        self.mean = float(self.squares.matrix.mean())
        self.unit = self.mean if relative else 1.0
        self._damping = damping * self.unit

    def direction(self, g: Tensor) -> Tensor:
        """Return g / (diag F + λ), entry by entry; zero where both F and λ are zero."""
        assert self.squares.matrix is not None
        scale = self.squares.matrix + self._damping
        return torch.where(scale > 0, g / scale, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and the damping in use."""
        numbers = {"damping": self._damping, "mean": self.mean, "unit": self.unit}
        return {"squares": self.squares.state_dict(), **numbers}

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, self.state_dict())
        for name in ("damping", "mean", "unit"):
            real(state[name], f"{where}.{name}", low=0)
        self.squares.check_state(state["squares"], f"{where}.squares", self.layer.shape)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a checked state."""
        self.squares.load_state_dict(state["squares"], self.layer.weight)
        self._damping, self.mean, self.unit = state["damping"], state["mean"], state["unit"]
