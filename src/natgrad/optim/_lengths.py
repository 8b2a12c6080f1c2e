"""Lengths that are learned from step to step, one for each block."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, tensor
from natgrad.optim._capture.batch import Batch
from natgrad.optim._direction import Direction
from natgrad.optim._states import entries, real
from natgrad.optim.step_length import Learned


@dataclass
class Trace:
    """The last step of one block.

    Attributes:
        params: Its parameters.
        tensors: Its direction.
        slope: Slope of the loss along it, by the gradient that it was made of.
        gain: Weight of what is learned from it.
    """

    params: list[Tensor]
    tensors: list[Tensor]
    slope: float
    gain: float


class Lengths:
    """One length η for each block, which grows while slope is left along the last step.

    After a step along d the next gradient g has the slope gᵀd. With h the ratio of this slope to
    the one that the step began with, log η += rate · h, |h| ≤ 1: h > 0 says that the step ended
    before the minimum along d, h < 0 beyond it. The next batch is independent of d, so h does not
    mistake the noise of a batch for a slope.

    Args:
        rule: The numbers.

    Attributes:
        values: η by block.
    """

    def __init__(self, rule: Learned) -> None:
        self.rule = rule
        self.values: dict[str, float] = {}
        self._last: dict[str, Trace] = {}

    def learn(self, batch: Batch) -> None:
        """Change every η by what the gradients of this batch say about the last step."""
        names, found = [], []
        for name, last in self._last.items():
            pairs = zip(last.params, last.tensors, strict=True)
            slopes = [(p.grad * d).sum() for p, d in pairs if p.grad is not None]
            if slopes and last.gain > 0 and last.slope > 0:
                names.append(name)
                found.append(torch.stack(slopes).sum())
        left = torch.stack(found).tolist() if found else []
        left = [slope / batch.world.size for slope in batch.sum(left)]  # the same everywhere
        for name, slope in zip(names, left, strict=True):
            last = self._last[name]
            h = slope / batch.total / last.slope if batch.total else 0.0
            self._change(name, last.gain * max(-1.0, min(1.0, h)) if math.isfinite(h) else 0.0)
        self._last = {}

    def _change(self, name: str, by: float) -> None:
        value = self.values[name] * math.exp(self.rule.rate * by)
        self.values[name] = min(max(value, self.rule.floor), self.rule.ceiling)

    def apply(self, direction: Direction, rate: float, own: Mapping[Tensor, float] | None) -> None:
        """Give every part of a direction its length, and remember the direction.

        Args:
            direction: d, each part of its block's norm.
            rate: The largest learning rate.
            own: Each parameter's own, in units of it; None for all ones.
        """
        for part in direction.parts:
            self.values.setdefault(part.name, self.rule.start)
        direction.rescale([self.values[part.name] for part in direction.parts])
        for part in direction.parts:
            largest = rate * (1.0 if own is None else max(own[p] for p in part.params))
            # A rate below one half is a schedule's, whose end must not be made up for.
            gain = max(0.0, min(1.0, 2 * largest - 1))
            self._last[part.name] = Trace(part.params, part.dense(), part.slope, gain)

    def undo(self) -> None:
        """Forget a step that was undone, and halve all lengths."""
        for name, value in self.values.items():
            self.values[name] = max(value / 2, self.rule.floor)
        self._last = {}

    def mean(self, direction: Direction) -> float:
        """Return the geometric mean of the lengths in a direction."""
        found = [math.log(self.values[part.name]) for part in direction.parts]
        return math.exp(sum(found) / len(found)) if found else 0.0

    def state_dict(self, names: Mapping[Tensor, str]) -> dict[str, Any]:
        """Return the lengths by block, and the last step by block and parameter."""
        last = {
            block: {
                "slope": trace.slope,
                "gain": trace.gain,
                "tensors": {names[p]: d for p, d in zip(trace.params, trace.tensors, strict=True)},
            }
            for block, trace in self._last.items()
        }
        return {"values": dict(self.values), "last": last}

    def check_state(self, state: Any, where: str, names: Mapping[Tensor, str]) -> None:
        """Raise unless a state can be loaded."""
        entries(state, where, ("values", "last"))
        for block, value in entries(state["values"], f"{where}.values", state["values"]).items():
            real(value, f"{where}.values.{block}", low=0, low_open=True)
        shapes = {name: tuple(p.shape) for p, name in names.items()}
        for block, trace in entries(state["last"], f"{where}.last", state["values"]).items():
            path = f"{where}.last.{block}"
            entries(trace, path, ("slope", "gain", "tensors"))
            real(trace["slope"], f"{path}.slope")
            real(trace["gain"], f"{path}.gain", low=0, high=1)
            entries(
                trace["tensors"], f"{path}.tensors", [n for n in shapes if n in trace["tensors"]]
            )
            for name, d in trace["tensors"].items():
                tensor(
                    d, f"{path}.tensors.{name}", shape=shapes[name], dtypes=ALL_FLOATS, empty=True
                )

    def load_state_dict(self, state: Mapping[str, Any], names: Mapping[Tensor, str]) -> None:
        """Take a checked state."""
        kept = {name: p for p, name in names.items()}
        self.values = dict(state["values"])
        self._last = {
            block: Trace(
                [kept[name] for name in trace["tensors"]],
                [torch.empty_like(kept[name]).copy_(d) for name, d in trace["tensors"].items()],
                trace["slope"],
                trace["gain"],
            )
            for block, trace in state["last"].items()
        }
