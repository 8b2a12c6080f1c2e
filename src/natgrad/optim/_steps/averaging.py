"""The average of the weights along a run."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, integer, tensor
from natgrad.optim._states import entries


class WeightAverage:
    """θ̄ ← θ̄ + (a/(k + a)) (θ − θ̄) after step k: an average over the last part of the run.

    The weights of past steps grow like k^{a−1}, so that about the last 1/a of all steps counts,
    at any time (Shamir and Zhang 2013). It removes noise from the last weights without
    a schedule that depends on the length of the run. Floating-point buffers, such as the running
    averages of batch normalization, are averaged, too.

    Args:
        params: The parameters, and buffers that follow them.
        exponent: a; larger forgets faster.

    Example:
        >>> w = torch.zeros(1)
        >>> average = WeightAverage([w], 1.0)
        >>> for value in (3.0, 0.0):
        ...     average.update([w.fill_(value)])
        >>> average.values
        [tensor([1.])]
    """

    def __init__(self, params: Sequence[Tensor], exponent: float) -> None:
        self.exponent, self.steps = exponent, 0
        self.values = [p.detach().clone() for p in params]

    @torch.no_grad()
    def update(self, params: Sequence[Tensor]) -> None:
        """Add the present weights to the average."""
        self.steps += 1
        weight = self.exponent / (self.steps + self.exponent)
        torch._foreach_lerp_(self.values, list(params), weight)

    @torch.no_grad()
    def swap(self, params: Sequence[Tensor]) -> None:
        """Exchange the average and the weights."""
        for p, value in zip(params, self.values, strict=True):
            held = p.clone()
            p.copy_(value)
            value.copy_(held)

    def state_dict(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the averages by name, and the number of steps."""
        return {"steps": self.steps, "values": dict(zip(names, self.values, strict=True))}

    def check_state(self, state: Any, where: str, names: Sequence[str]) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, ("steps", "values"))
        integer(state["steps"], f"{where}.steps", low=0)
        saved = entries(state["values"], f"{where}.values", names)
        for name, own in zip(names, self.values, strict=True):
            tensor(
                saved[name],
                f"{where}.values.{name}",
                shape=tuple(own.shape),
                dtypes=ALL_FLOATS,
                empty=True,
            )

    def load_state_dict(self, state: Mapping[str, Any], names: Sequence[str]) -> None:
        """Load a checked state."""
        self.steps = state["steps"]
        with torch.no_grad():
            for name, value in zip(names, self.values, strict=True):
                value.copy_(state["values"][name])
