"""Parameters without Kronecker factors: plain gradient steps of a safe length."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from natgrad.optim._states import entries, real


class PlainBlock:
    """A gradient step divided by tr F + λ, F the Fisher block of one parameter.

    No eigenvalue exceeds the trace, so the step never overshoots. The trace costs nothing: a
    gradient g = Σₙ gₙ at labels drawn from the model has E ‖g‖² = Σₙ E ‖gₙ‖² = N tr F.

    Args:
        param: The parameter.
        memory: How many past data the trace remembers.
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
