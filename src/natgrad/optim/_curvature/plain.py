"""Blocks without Kronecker factors: the diagonal of the Fisher, and plain gradient steps."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from natgrad.optim._capture.batch import Batch, Call
from natgrad.optim._curvature.factor import Factor, Gram, average
from natgrad.optim._curvature.inverse import Keeper
from natgrad.optim._direction import OuterPart
from natgrad.optim._layers.linear import Layer
from natgrad.optim._states import entries, real


class PlainBlock:
    """A gradient step divided by tr F + λ, F the Fisher block of one parameter.

    No eigenvalue exceeds the trace, so the step never overshoots. The trace costs nothing: a
    gradient g = Σₙ gₙ at labels drawn from the model has E ‖g‖² = Σₙ E ‖gₙ‖² = N tr F.

    Args:
        param: The parameter.
        memory: How many past samples the trace remembers.
    """

    def __init__(self, param: Parameter, memory: float) -> None:
        self.param, self.memory = param, memory
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

    def update(self, trace: float, n: int) -> None:
        """Blend in the trace estimated from n data."""
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

    @staticmethod
    def check_state(state: Any, where: str) -> None:
        """Raise unless a state can be loaded."""
        entries(state, where, ("trace", "past", "damping"))
        real(state["damping"], f"{where}.damping", low=0)
        past = real(state["past"], f"{where}.past", low=0)
        if state["trace"] is not None or past:
            real(state["trace"], f"{where}.trace", low=0)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checked state."""
        self.trace, self._past = state["trace"], state["past"]
        self._damping = state["damping"]


class DiagonalBlock:
    """The diagonal of one layer's Fisher block, [BLH18] §6: average squares of its gradients.

    A weight used at several positions of one sample counts each by itself.

    Args:
        layer: The layer.
        memory: How many past samples the average remembers.

    Attributes:
        mean: Mean of the diagonal at the last refresh.
    """

    def __init__(self, layer: Layer, *, memory: float) -> None:
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

    def outer(self, x: Tensor, total: float, norms: Mapping[Tensor, float]) -> OuterPart | None:
        """Return None: a diagonal has no use for the form of a single sample's gradient."""
        return None

    def update(self, batch: Batch) -> None:
        """Blend in the squares of a batch."""
        pairs = zip(batch.calls, batch.weights, strict=True)
        found = [(call.moments[self.layer.name], w) for call, w in pairs if self.wants(call)]
        seen = [Gram(total=moments.squares) for moments, _ in found]
        self.squares.update(average(seen, [w for _, w in found], batch.world), n=batch.n)

    def refresh(self, damping: float, *, here: bool = True) -> list[Keeper]:
        """Take this damping."""
        assert self.squares.matrix is not None
        self._damping, self.mean = damping, float(self.squares.matrix.mean())
        return []

    def direction(self, g: Tensor) -> Tensor:
        """Return g / (diag F + λ), entry by entry; zero where the Fisher is and λ = 0."""
        assert self.squares.matrix is not None
        scale = self.squares.matrix + self._damping
        return torch.where(scale > 0, g / scale, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and the damping in use."""
        numbers = {"damping": self._damping, "mean": self.mean}
        return {"squares": self.squares.state_dict(), **numbers}

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless a state can be loaded."""
        entries(state, where, self.state_dict())
        for name in ("damping", "mean"):
            real(state[name], f"{where}.{name}", low=0)
        self.squares.check_state(state["squares"], f"{where}.squares", self.layer.shape)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checked state."""
        self.squares.load_state_dict(state["squares"], self.layer.weight)
        self._damping, self.mean = state["damping"], state["mean"]
