"""Lengths that are learned from step to step, one for each block."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, describe, flag, tensor
from natgrad.errors import DtypeError, InvalidInputError
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
        bound: Whether it was shorter than η, so that η may only fall.
    """

    params: list[Tensor]
    tensors: list[Tensor]
    slope: float
    gain: float
    bound: bool


class Lengths:
    """One length η for each block, which grows while slope is left along the last step.

    After a step along d the next gradient g has the slope gᵀd. With h the ratio of this slope to
    the one that the step began with, log η += rate · h, |h| ≤ 1: h > 0 says that the step ended
    before the minimum along d, h < 0 beyond it. The next batch is independent of d, so h does not
    mistake the noise of a batch for a slope.

    Args:
        rule: The numbers.
        blocks: Names of the blocks.

    Attributes:
        values: η by block.
    """

    def __init__(self, rule: Learned, blocks: Iterable[str]) -> None:
        self.rule = rule
        self.values = dict.fromkeys(blocks, rule.start)
        self._last: dict[str, Trace] = {}
        self._bound: set[str] = set()

    def learn(self, batch: Batch) -> None:
        """Change every η by what the gradients of this batch say about the last step."""
        names, found = [], []
        for name, last in self._last.items():
            pairs = zip(last.params, last.tensors, strict=True)
            slopes = [_dot(p.grad, d) for p, d in pairs if p.grad is not None]
            if slopes and last.gain > 0 and last.slope > 0:
                names.append(name)
                found.append(torch.stack(slopes).sum())
        left = torch.stack(found).tolist() if found else []
        left = [slope / batch.world.size for slope in batch.sum(left)]  # the same everywhere
        for name, slope in zip(names, left, strict=True):
            last = self._last[name]
            h = slope / batch.total / last.slope if batch.total else 0.0
            if math.isfinite(h):
                h = max(-1.0, min(0.0 if last.bound else 1.0, h))
                self._change(name, last.gain * h)
        self._last = {}

    def _change(self, name: str, by: float) -> None:
        value = self.values[name] * math.exp(self.rule.rate * by)
        self.values[name] = min(max(value, self.rule.floor), self.rule.ceiling)

    def apply(self, direction: Direction) -> None:
        """Give every part of a direction its length: η times its norm, but at most all of d.

        The bound is that of a Newton step: where the loss and its curvature vanish together, as
        when all labels are fitted, d itself tells how far there is something to gain.
        """
        self._bound = set()
        shares = []
        for part, square in zip(direction.parts, direction.squares, strict=True):
            share = self.values[part.name]
            if part.norm is not None and square > 0:
                share *= part.norm / math.sqrt(square)
                if not share < 1:
                    self._bound.add(part.name)
                    share = 1.0
            shares.append(share)
        direction.rescale(shares)

    def remember(
        self, direction: Direction, rate: float, own: Mapping[Tensor, float] | None
    ) -> None:
        """Keep the direction of a step, to learn from it at the next.

        Args:
            direction: d, after `apply`.
            rate: The largest learning rate.
            own: Each parameter's own, in units of it; None for all ones.
        """
        for part in direction.parts:
            largest = rate * (1.0 if own is None else max(own[p] for p in part.params))
            # A rate below one half is a schedule's, whose end must not be made up for.
            gain = max(0.0, min(1.0, 2 * largest - 1))
            bound = part.name in self._bound
            self._last[part.name] = Trace(part.params, part.dense(), part.slope, gain, bound)

    def of(self, direction: Direction) -> dict[Tensor, float]:
        """Return the length of every parameter in a direction."""
        return {p: self.values[part.name] for part in direction.parts for p in part.params}

    def undo(self) -> None:
        """Forget a step that was undone, and halve all lengths."""
        for name, value in self.values.items():
            self.values[name] = max(value / 2, self.rule.floor)
        self._last = {}

    def mean(self, direction: Direction) -> float:
        """Return the geometric mean of the lengths in a direction."""
        found = [math.log(self.values[part.name]) for part in direction.parts]
        return math.exp(sum(found) / len(found)) if found else 1.0

    def state_dict(self, names: Mapping[Tensor, str]) -> dict[str, Any]:
        """Return the lengths and the last step by block, and its direction by parameter."""
        last: dict[str, Any] = dict.fromkeys(self.values)
        tensors: dict[str, Tensor | None] = dict.fromkeys(names.values())
        for block, trace in self._last.items():
            last[block] = {
                "slope": trace.slope,
                "gain": trace.gain,
                "bound": trace.bound,
                "params": [names[p] for p in trace.params],
            }
            tensors |= {names[p]: d for p, d in zip(trace.params, trace.tensors, strict=True)}
        return {"values": dict(self.values), "last": last, "tensors": tensors}

    def check_state(self, state: Any, where: str, names: Mapping[Tensor, str]) -> None:
        """Raise unless a state can be loaded."""
        entries(state, where, ("values", "last", "tensors"))
        for block, value in entries(state["values"], f"{where}.values", self.values).items():
            bounds = {"low": self.rule.floor, "high": self.rule.ceiling}
            real(value, f"{where}.values.{block}", **bounds)
        tensors = entries(state["tensors"], f"{where}.tensors", names.values())
        for p, name in names.items():
            if tensors[name] is not None:
                path = f"{where}.tensors.{name}"
                tensor(tensors[name], path, shape=tuple(p.shape), dtypes=ALL_FLOATS, empty=True)
        free = [name for name, d in tensors.items() if d is not None]
        for block, trace in entries(state["last"], f"{where}.last", self.values).items():
            path = f"{where}.last.{block}"
            if trace is None:
                continue
            entries(trace, path, ("slope", "gain", "bound", "params"))
            real(trace["slope"], f"{path}.slope")
            real(trace["gain"], f"{path}.gain", low=0, high=1)
            flag(trace["bound"], f"{path}.bound")
            if not isinstance(trace["params"], list):
                found = describe(trace["params"])
                raise DtypeError(f"{path}.params must be a list of names, but is {found}.")
            for name in trace["params"]:
                if name not in free:
                    raise InvalidInputError(f"{path}.params has no tensor for {describe(name)}.")
                free.remove(name)
        if free:
            raise InvalidInputError(f"{where}.last lacks the block of {free[0]!r}.")

    def load_state_dict(self, state: Mapping[str, Any], names: Mapping[Tensor, str]) -> None:
        """Take a checked state."""
        kept = {name: p for p, name in names.items()}
        self.values = dict(state["values"])
        self._last = {
            block: Trace(
                [kept[name] for name in trace["params"]],
                [
                    torch.empty_like(kept[name]).copy_(state["tensors"][name])
                    for name in trace["params"]
                ],
                trace["slope"],
                trace["gain"],
                trace["bound"],
            )
            for block, trace in state["last"].items()
            if trace is not None
        }


def _dot(g: Tensor, d: Tensor) -> Tensor:
    """Return Σ g d; its rounding depends on the layout of g alone, so that runs resume exactly."""
    return torch.mul(g, d, out=torch.empty_like(g)).sum()
