"""Lengths that are learned from step to step, one per block."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import ALL_FLOATS, describe, flag, integer, tensor
from natgrad.errors import DtypeError, InvalidInputError
from natgrad.optim._capture.batch import Batch
from natgrad.optim._distributed import World
from natgrad.optim._states import entries, real
from natgrad.optim._steps.direction import Direction, shorter, shrink, shrinkage
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.step_length import Learned

# Smaller batches do not show whether a step raised the loss; weight of the latest loss in
# the average with which losses are compared.
_FEW, _LATEST = 8, 0.1

DECAY = 0.3
"""Default weight decay with learned lengths: docs/notebook.md has what it does."""

# If more than this part of the slope is left on average, lengths are far too short.
_FAR = 0.6

# No length falls below this part of the mean of its values so far.
_KEPT = 0.2


@dataclass
class Trace:
    """The last step of one block.

    Attributes:
        params: Its parameters.
        tensors: Its direction.
        slope: Slope of the loss along it, from the gradient that gave the direction.
        gain: Weight of the next change of log η.
        bound: Whether it was shorter than η, so that η may only fall.
        rate: How far along the direction the step went; 0 if it was not the last one.
        shrunk: By what weight decay then multiplied each parameter.
        owner: The process that keeps the direction; None for all.
    """

    params: list[Tensor]
    tensors: list[Tensor]
    slope: float
    gain: float
    bound: bool
    rate: float
    shrunk: list[float]
    owner: int | None = None

    def along(self) -> Tensor:
        """Return the slope of `.grad` along the step, as far as this process keeps it."""
        pairs = zip(self.params, self.tensors, strict=False)
        slopes = [_dot(p.grad, d) for p, d in pairs if p.grad is not None]
        return torch.stack(slopes).sum() if slopes else self.params[0].new_zeros(())


class Lengths:
    """One length η per block, which grows while slope is left along the last step.

    After a step along d the next gradient g has the slope gᵀd. With h the ratio of this slope to
    the one that the step began with, log η += rate · h, |h| ≤ 1: h > 0 says that the step ended
    before the minimum along d, h < 0 beyond it. The next batch is nearly independent of d, so h
    does not mistake the noise of a batch for a slope. While most of the slope is left in every
    block, all lengths are far too short, and the rate rises up to `fast`.

    Batches of one epoch are not quite independent: what one batch has, the others lack. With M
    batches their noise has a correlation of −1/(M − 1), which makes h negative, and lengths would
    fall exponentially, long before the end of a fit. So η stays above `_KEPT` times its mean so
    far: it falls like t^(_KEPT − 1) at most.

    Args:
        rule: The constants.
        starts: First length of each block, in units of `start` of the rule.
        world: The processes among which it is divided.
        owners: The process that keeps the last step of each block.

    Attributes:
        values: η by block.
        means: Number of changes of each η, and the mean of its values before them.
        left: An average of the least h of each step.
    """

    def __init__(
        self,
        rule: Learned,
        starts: Mapping[str, float],
        world: World | None = None,
        owners: Mapping[str, int] | None = None,
    ) -> None:
        self.rule = rule
        self.world = World() if world is None else world
        self._owners = {} if owners is None else owners
        self.values: dict[str, float] = {}
        self.means: dict[str, tuple[int, float]] = {}
        self.left = 0.0
        self._last: dict[str, Trace] = {}
        self._bound: set[str] = set()
        self._loss = self._spread = 0.0  # averages of losses, and of their distances from it
        self._batches = 0
        self.follow(starts)

    def follow(self, starts: Mapping[str, float]) -> None:
        """Take these blocks; those that are known keep their lengths."""
        first = {
            name: max(self.rule.floor, share * self.rule.start) for name, share in starts.items()
        }
        self.values = first | {n: value for n, value in self.values.items() if n in first}
        self.means = {name: self.means.get(name, (0, 0.0)) for name in first}
        if not self._last.keys() <= self.values.keys():
            self._last = {}  # part of a step cannot be undone

    def raised(self, loss: float | None, n: int, reject: float) -> bool:
        """Return whether the last step must be undone, by the loss of the batch after it.

        It is if this loss is above the average of the last ten by more than a fraction `reject`
        of it plus four times their mean distance from it. The loss joins the average, so that
        batches with a higher loss are soon accepted.

        Args:
            loss: The average loss of the batch, if it is known.
            n: Number of samples; small batches are not judged.
            reject: A fraction; infinity keeps every step.
        """
        if loss is None or n < _FEW:
            return False
        limit = self._loss + reject * abs(self._loss) + 4 * self._spread
        raised = bool(self._batches and self._last and loss > limit)
        self._batches += 1
        weight = max(_LATEST, 1 / self._batches)
        self._spread += (abs(loss - self._loss) - self._spread) * weight if weight < 1 else 0.0
        self._loss += (loss - self._loss) * weight
        return raised

    def learn(self, batch: Batch) -> None:
        """Update every η from the slopes of this batch along the last step."""
        names, slopes = [], []
        for name, last in self._last.items():
            if last.gain > 0 and last.slope > 0 and any(p.grad is not None for p in last.params):
                names.append(name)
                alone = batch.world.size == 1
                slopes.append(last.along() * (1.0 if alone else batch.world.share(last.owner)))
        # the sum is the same in every process
        left = batch.sum(torch.stack(slopes).tolist() if slopes else [])
        found = {}
        for name, slope in zip(names, left, strict=True):
            h = slope / batch.total / self._last[name].slope if batch.total else math.nan
            if math.isfinite(h):
                found[name] = max(-1.0, min(0.0 if self._last[name].bound else 1.0, h))
        if found:
            self._change(found)
        # A block without a gradient, such as an expert that was not asked, waits for its next one.
        still = {n: t for n, t in self._last.items() if all(p.grad is None for p in t.params)}
        self._last = {
            name: replace(last, rate=0.0, shrunk=[1.0] * len(last.params))
            for name, last in still.items()
        }

    def _change(self, found: Mapping[str, float]) -> None:
        """Change every η by its h."""
        rule = self.rule
        self.left = (self.left + min(found.values())) / 2
        far = max(0.0, (self.left - _FAR) / (1 - _FAR))
        rate = rule.rate + (rule.fast - rule.rate) * far
        for name, h in found.items():
            by = (rate if h > 0 else rule.rate) * self._last[name].gain * h
            k, mean = self.means[name]
            mean += (self.values[name] - mean) / (k + 1)
            self.means[name] = k + 1, mean
            value = max(self.values[name] * math.exp(by), _KEPT * mean, rule.floor)
            self.values[name] = min(value, rule.ceiling)

    def apply(self, direction: Direction, loss: float | None) -> dict[str, float]:
        """Scale every part of a direction to its length: η times its norm, but at most d itself.

        The bound is that of a Newton step: where the loss and its curvature vanish together, as
        when all labels are fitted, d itself limits how far the loss can decrease.

        Args:
            direction: d.
            loss: The loss, if it is a squared error; None otherwise.

        Returns:
            The largest ρ that d of each block can have with this loss; ∞ if it is taken whole.
        """
        self._bound = set()
        possible = direction.possible(loss)
        shares = []
        for part, square in zip(direction.parts, direction.squares, strict=True):
            share = self.values[part.name]
            if part.norm is not None:
                share *= part.norm / math.sqrt(square) if square > 0 else math.inf
                if not share < 1:
                    self._bound.add(part.name)
                    share = 1.0
            shares.append(share)
        direction.rescale(shares)
        return possible | dict.fromkeys(self._bound, math.inf)

    def remember(
        self,
        direction: Direction,
        rate: float,
        own: Mapping[Tensor, float] | None,
        shrunk: Mapping[Tensor, float],
    ) -> None:
        """Keep the direction of a step, to update η at the next step.

        Args:
            direction: d, after `apply`.
            rate: The largest learning rate.
            own: Each parameter's own, in units of it; None for all ones.
            shrunk: By what weight decay multiplies parameters after the step.
        """
        for part in direction.parts:
            largest = rate * (1.0 if own is None else max(own[p] for p in part.params))
            # A rate below one half belongs to a schedule; η must not compensate for it.
            gain = max(0.0, min(1.0, 2 * largest - 1))
            bound = part.name in self._bound
            tensors = part.dense() if part.owner in (None, self.world.rank) else []
            tensors = [d.to(shorter(d.dtype)) for d in tensors]
            self._last[part.name] = Trace(
                part.params,
                tensors,
                part.slope,
                gain,
                bound,
                rate,
                [shrunk.get(p, 1.0) for p in part.params],
                part.owner,
            )

    def take(
        self,
        direction: Direction,
        rate: float,
        own: Mapping[Tensor, float] | None,
        *,
        groups: Sequence[Mapping[str, Any]],
        seen: StepStatistics,
    ) -> None:
        """Step along a scaled direction, and fill in the statistics.

        Args:
            direction: d, after `apply`.
            rate: The largest learning rate.
            own: Each parameter's own, in units of it; None for all ones.
            groups: Of parameters, for their weight decay.
            seen: What is known of this step; the rest is filled in.
        """
        for part in direction.parts:
            part.shorten()
        # A whole natural step ends at the minimum of its model: decay would only move it away.
        free = [part for part in direction.parts if part.name not in self._bound]
        shrunk = shrinkage(groups, {p: self.values[x.name] for x in free for p in x.params})
        self.remember(direction, rate, own, shrunk)
        direction.move(rate)
        shrink(shrunk)
        # The decrease at the minimum along a direction is half of the slope times the step.
        seen.predicted, seen.share = rate * direction.slope / 2, 1.0
        logs = [math.log(self.values[part.name]) for part in direction.parts]
        seen.length = rate * math.exp(sum(logs) / len(logs)) if logs else 0.0
        seen.step_norm = rate * math.sqrt(direction.square)
        if seen.loss is None:
            seen.notes = ["the loss is not known, so no step is undone: pass a closure to step()"]

    def undo(self) -> None:
        """Undo the last step, up to rounding, and halve all lengths."""
        for last in self._last.values():
            tensors = last.tensors or [_room(p) for p in last.params]
            if last.owner is not None:
                tensors = [d.contiguous() for d in tensors]
                self.world.send(tensors, last.owner)
            torch._foreach_div_(last.params, last.shrunk)
            torch._foreach_add_(last.params, tensors, alpha=last.rate)
        for name, value in self.values.items():
            self.values[name] = max(value / 2, self.rule.floor)
        self.means = {name: (k, mean / 2) for name, (k, mean) in self.means.items()}
        self._last, self.left = {}, 0.0

    def state_dict(self, names: Mapping[Tensor, str]) -> dict[str, Any]:
        """Return the lengths and the last step by block, and its direction by parameter."""
        last: dict[str, Any] = dict.fromkeys(self.values)
        tensors: dict[str, Tensor | None] = dict.fromkeys(names.values())
        for block, trace in self._last.items():
            last[block] = {
                "slope": trace.slope,
                "gain": trace.gain,
                "bound": trace.bound,
                "rate": trace.rate,
                "shrunk": list(trace.shrunk),
                "params": [names[p] for p in trace.params],
            }
            tensors |= {names[p]: d for p, d in zip(trace.params, trace.tensors, strict=False)}
        losses = {"mean": self._loss, "spread": self._spread, "batches": self._batches}
        means = {name: list(pair) for name, pair in self.means.items()}
        numbers = {"values": dict(self.values), "means": means, "left": self.left}
        return {**numbers, "last": last, "tensors": tensors, "losses": losses}

    def check_state(self, state: Any, where: str, names: Mapping[Tensor, str]) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, ("values", "means", "left", "last", "tensors", "losses"))
        losses = entries(state["losses"], f"{where}.losses", ("mean", "spread", "batches"))
        real(losses["mean"], f"{where}.losses.mean")
        real(losses["spread"], f"{where}.losses.spread", low=0)
        integer(losses["batches"], f"{where}.losses.batches", low=0)
        for block, value in entries(state["values"], f"{where}.values", self.values).items():
            bounds = {"low": self.rule.floor, "high": self.rule.ceiling}
            real(value, f"{where}.values.{block}", **bounds)
        for block, pair in entries(state["means"], f"{where}.means", self.values).items():
            path = f"{where}.means.{block}"
            if not isinstance(pair, list) or len(pair) != 2:
                raise DtypeError(f"{path} must be a list of two numbers, but is {describe(pair)}.")
            integer(pair[0], f"{path}[0]", low=0)
            real(pair[1], f"{path}[1]", low=0, high=self.rule.ceiling)
        real(state["left"], f"{where}.left", low=-1, high=1)
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
            entries(trace, path, ("slope", "gain", "bound", "rate", "shrunk", "params"))
            for name in ("slope", "rate"):
                real(trace[name], f"{path}.{name}")
            real(trace["gain"], f"{path}.gain", low=0, high=1)
            flag(trace["bound"], f"{path}.bound")
            if not isinstance(trace["params"], list):
                found = describe(trace["params"])
                raise DtypeError(f"{path}.params must be a list of names, but is {found}.")
            factors, count = trace["shrunk"], len(trace["params"])
            if not isinstance(factors, list) or len(factors) != count:
                raise DtypeError(
                    f"{path}.shrunk must be a list of {count} numbers, but is {describe(factors)}."
                )
            for k, factor in enumerate(factors):
                real(factor, f"{path}.shrunk[{k}]", low=1e-300)
            for name in trace["params"]:
                if name not in free:
                    raise InvalidInputError(f"{path}.params has no tensor for {describe(name)}.")
                free.remove(name)
        if free:
            raise InvalidInputError(f"{where}.last lacks the block of {free[0]!r}.")

    def load_state_dict(self, state: Mapping[str, Any], names: Mapping[Tensor, str]) -> None:
        """Load a checked state."""
        kept = {name: p for p, name in names.items()}
        self.values, self.left = dict(state["values"]), state["left"]
        self.means = {name: (k, mean) for name, (k, mean) in state["means"].items()}
        losses = state["losses"]
        self._loss, self._spread = losses["mean"], losses["spread"]
        self._batches = losses["batches"]
        self._last = {
            block: self._loaded(block, trace, [kept[name] for name in trace["params"]], state)
            for block, trace in state["last"].items()
            if trace is not None
        }

    def _loaded(
        self, block: str, trace: Mapping[str, Any], params: list[Tensor], state: Mapping[str, Any]
    ) -> Trace:
        """Return the last step of a block, with its direction if this process keeps it."""
        owner = self._owners.get(block)
        saved = [state["tensors"][name] for name in trace["params"]]
        pairs = zip(params, saved, strict=True) if owner in (None, self.world.rank) else ()
        tensors = [_room(p).copy_(d) for p, d in pairs]
        numbers = {name: trace[name] for name in ("slope", "gain", "bound", "rate")}
        numbers["shrunk"] = list(trace["shrunk"])
        return Trace(params, tensors, **numbers, owner=owner)


def _room(p: Tensor) -> Tensor:
    """Return an empty tensor for the direction of a parameter."""
    return torch.empty_like(p, dtype=shorter(p.dtype))


def _dot(g: Tensor, d: Tensor) -> Tensor:
    """Return Σ g d; its rounding depends on the layout of g alone, so that runs resume exactly."""
    return torch.mul(g, d, out=torch.empty_like(g)).sum()
