"""All blocks of the Fisher, one per layer, and what becomes of the other parameters."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from natgrad.errors import InvalidInputError
from natgrad.likelihoods import Likelihood
from natgrad.optim._capture.batch import Batch
from natgrad.optim._curvature.away import AwayBlock, divided
from natgrad.optim._curvature.batch_side import BatchSide, Rows
from natgrad.optim._curvature.factor import Factor
from natgrad.optim._curvature.kronecker import KroneckerBlock
from natgrad.optim._curvature.plain import AdamBlock, DiagonalBlock, PlainBlock
from natgrad.optim._curvature.propagated import Chain
from natgrad.optim._distributed import World
from natgrad.optim._layers.coverage import Coverage
from natgrad.optim._layers.linear import wide
from natgrad.optim._states import entries
from natgrad.optim._steps.direction import Direction, Part

OTHERS = "(others)"
"""Name of the part that holds all parameters without a block."""


Held = KroneckerBlock | DiagonalBlock
Block = Held | AwayBlock


class BlockDiagonal:
    """One block of the Fisher for each layer, and plain steps for other parameters.

    Args:
        coverage: The model's layers and other parameters. A layer whose weight turns out to be used
            outside of its forward is moved to the others.
        blocks: By module name.
        memory: How many past samples are remembered.
        relative: Whether the damping is in units of each block's mean eigenvalue.
        adam: Whether parameters without a block take Adam's steps instead of plain ones.
        chain: Computes the factors of a linear network, [BLH18] (14)–(15).
        world: The processes among which the blocks are divided.

    Attributes:
        settled: Layers whose error factor will never change.
        starts: First length of each part that a direction may have, in units of the usual one.
        owners: The process that holds each block; empty if there is one process.
        scale: Geometric mean over layers of a block's mean eigenvalue, at the last refresh.
        side: Computes the directions of wide layers from rows of a batch; None uses `.grad` only.
    """

    def __init__(
        self,
        coverage: Coverage,
        blocks: Mapping[str, Held],
        *,
        memory: float | None,
        relative: bool = False,
        adam: bool = False,
        chain: Chain | None = None,
        world: World | None = None,
    ) -> None:
        self.coverage, self.memory = coverage, memory
        self.world = World() if world is None else world
        sizes = {name: math.prod(block.layer.shape) for name, block in blocks.items()}
        owners = divided(sizes, self.world.size)
        self.blocks: dict[str, Block] = {
            name: block if owners[name] == self.world.rank else AwayBlock(block)
            for name, block in blocks.items()
        }
        self.owners = owners if self.world.size > 1 else {}
        self.relative, self.adam = relative, adam
        self.plain = {name: self._without(p) for name, p in coverage.others.items()}
        self.chain, self._sigma = chain, Factor(memory)
        self.settled: set[str] = set()
        self.starts = {name: coverage.layers[name].start() for name in self.blocks} | {OTHERS: 1.0}
        self.scale = 0.0
        self.side: BatchSide | None = None

    def _without(self, param: Parameter) -> PlainBlock | AdamBlock:
        return AdamBlock(param) if self.adam else PlainBlock(param, self.memory)

    def take_over(self, other: "BlockDiagonal") -> None:
        """Take the blocks of another one for layers and parameters that both have."""
        for name, block in other.blocks.items():
            own = self.blocks.get(name)
            if own is not None and list(map(id, own.layer.parameters)) == list(
                map(id, block.layer.parameters)
            ):
                self.blocks[name] = block
                self.coverage.layers[name] = block.layer
        self.side = other.side
        self.plain |= {name: plain for name, plain in other.plain.items() if name in self.plain}
        self.settled |= {name for name in self.blocks if self.blocks[name].settled}

    def observe(self, total: float) -> None:
        """Record the gradients of a step, which are `total` times those of the average loss."""
        for plain in self.plain.values():
            plain.observe(total)

    def update(self, batch: Batch, likelihood: Likelihood) -> dict[str, str]:
        """Add the statistics of a batch; return parameters that lost their factors, and why.

        There is one possible reason: a layer got a gradient although nothing passed through its
        forward, because other code reads its weight (`torch.nn.MultiheadAttention` does).
        """
        hidden: dict[str, str] = {}
        if self.chain is not None:
            self._propagate(self.chain, batch, likelihood)
        else:
            for name, block in list(self.blocks.items()):
                if any(block.wants(call) for call in batch.calls):
                    block.update(batch, self.owners.get(name))
                    if block.settled:
                        self.settled.add(name)
                elif block.layer.weight.grad is not None and not block.ready:
                    hidden |= self._drop(name)
        for name, plain in self.plain.items():
            if isinstance(plain, PlainBlock) and any(name in call.traces for call in batch.calls):
                pairs = zip(batch.calls, batch.weights, strict=True)
                trace = sum(w * call.traces.get(name, 0.0) for call, w in pairs)
                if batch.world.size > 1:
                    (trace,) = batch.world.sum([trace])
                plain.update(trace, batch.count)
        return hidden

    @property
    def holders(self) -> dict[Tensor, int]:
        """Return the process that holds the block of each parameter, if there are several."""
        pairs = self.owners.items()
        return {p: owner for name, owner in pairs for p in self.blocks[name].layer.parameters}

    @property
    def away(self) -> set[Tensor]:
        """Return the parameters whose block another process holds."""
        blocks = [block for block in self.blocks.values() if isinstance(block, AwayBlock)]
        return {p for block in blocks for p in block.layer.parameters}

    def refresh(self, damping: float, raised: Mapping[str, float]) -> None:
        """Update the inverses; every process those of its own blocks.

        Args:
            damping: λ.
            raised: The damping of blocks that have their own.
        """
        for plain in self.plain.values():
            if isinstance(plain, PlainBlock):
                plain.refresh(damping)
        known = [block for block in self.blocks.values() if block.known]
        for block in known:
            if not isinstance(block, AwayBlock):
                own = raised.get(block.layer.name, damping)
                block.refresh(own, relative=self.relative)
        if self.world.size > 1:
            pairs = [(0.0, 0.0) if isinstance(b, AwayBlock) else (b.mean, b.unit) for b in known]
            numbers = self.world.sum([number for pair in pairs for number in pair])
            for block, mean, unit in zip(known, numbers[::2], numbers[1::2], strict=True):
                if isinstance(block, AwayBlock):
                    block.mean, block.unit, block.ready = mean, unit, True
        self._set_scale()

    def _set_scale(self) -> None:
        means = [block.mean for block in self.blocks.values() if block.mean > 0]
        self.scale = statistics.geometric_mean(means) if means else 0.0

    def begin(self, rows: Rows) -> set[Tensor]:
        """Take rows of this step; return parameters that move by them, not by `.grad`."""
        idle = self.side is None or not (rows or self.side.kept)
        return set() if self.side is None or idle else self.side.begin(rows, self.blocks)

    def direction(self, batch: Batch, norms: Mapping[Tensor, float] | None) -> Direction:
        """Return the direction for the gradients that `.grad` holds.

        Args:
            batch: The batch.
            norms: Norms of the gradients, by parameter; None if they do not come from this batch
                alone, and so never from a single sample.
        """
        single = batch.calls[0].single if batch.n == 1 and norms is not None else {}
        parts: list[Part] = []
        pending: list[tuple[list[Tensor], list[Tensor], Tensor, dict[str, Any]]] = []
        moving = {
            name: block
            for name, block in self.blocks.items()
            if block.ready and block.layer.weight.grad is not None
        }
        sent = {} if self.world.size == 1 else self._exchanged(moving, batch.total)
        for name, block in moving.items():
            if not isinstance(block, AwayBlock) and norms is not None and name in single:
                outer = block.outer(single[name], batch.total, norms)
                if outer is not None:
                    parts.append(outer)
                    continue
            found = sent.get(name) or self._by_rows(block, batch.total)
            found = found or self._dense(block, batch.total)
            kind: dict[str, Any] = {"name": name, "unit": block.unit}
            kind["norm"] = block.layer.norm(found[0])
            kind["owner"] = self.owners.get(name)
            params, tensors = self._split(block, found[0])
            kind["whole"] = _whole(found[0], tensors)
            pending.append((params, tensors, found[1], kind))
        if plain := self._plain_part(batch):
            pending.append((*plain, {"name": OTHERS}))
        values = torch.stack([found[2] for found in pending]).tolist() if pending else []
        for (params, tensors, _, kind), slope in zip(pending, values, strict=True):
            parts.append(Part(params, tensors, slope, **kind))
        return Direction(parts)

    def _by_rows(self, block: Block, total: float) -> tuple[Tensor, Tensor] | None:
        """Return a block's direction and its slope if it is computed from rows."""
        if self.side is None or block.layer.name not in self.side.rows:
            return None
        assert isinstance(block, KroneckerBlock)
        return self.side.direction(block, total)

    def _dense(self, block: Block, total: float) -> tuple[Tensor, Tensor]:
        """Return a block's direction as one matrix, and its slope."""
        assert not isinstance(block, AwayBlock)
        g = block.layer.gradient()
        assert g is not None
        own = g.dtype
        g = wide(g if total == 1 else g / total)
        d = block.direction(g)
        slope = torch.dot(g.reshape(-1), d.reshape(-1))
        return d.to(own), slope

    def _split(self, block: Block, d: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters of a block that move, and their directions."""
        pairs = zip(block.layer.parameters, block.layer.split(d), strict=True)
        moved = [(p, part) for p, part in pairs if p.grad is not None]
        return [p for p, _ in moved], [part for _, part in moved]

    def _exchanged(
        self, moving: Mapping[str, Block], total: float
    ) -> dict[str, tuple[Tensor, Tensor]]:
        """Return the directions and slopes of all blocks, each computed by its owner."""
        found: dict[str, tuple[Tensor, Tensor]] = {}
        for name, block in moving.items():
            if isinstance(block, AwayBlock):
                weight = block.layer.weight
                found[name] = weight.new_empty(block.layer.shape), weight.new_zeros(())
            else:
                d, slope = self._dense(block, total)
                found[name] = d.contiguous(), slope
        slopes = self.world.sum([float(slope) for _, slope in found.values()])
        for (name, (d, slope)), value in zip(found.items(), slopes, strict=True):
            self.world.send([d], self.owners[name])
            slope.fill_(value)
        return found

    def _plain_part(self, batch: Batch) -> tuple[list[Tensor], list[Tensor], Tensor] | None:
        moved = [plain for plain in self.plain.values() if plain.ready]
        if not moved:
            return None
        gradients = [p.param.grad / batch.total for p in moved if p.param.grad is not None]
        tensors = [plain.direction(g) for plain, g in zip(moved, gradients, strict=True)]
        slope = torch.stack([(g * d).sum() for g, d in zip(gradients, tensors, strict=True)]).sum()
        return [plain.param for plain in moved], tensors, slope

    def _drop(self, name: str) -> dict[str, str]:
        reason = "its weight is used outside of its forward"
        del self.blocks[name]
        self.owners.pop(name, None)
        dropped = self.coverage.drop(name, reason)
        self.plain |= {key: self._without(p) for key, p in dropped.items()}
        return dict.fromkeys(dropped, reason)

    def _propagate(self, chain: Chain, batch: Batch, likelihood: Likelihood) -> None:
        for call, weight in zip(batch.calls, batch.weights, strict=True):
            moments = call.moments[chain.layers[0].name]
            assert moments.inputs is not None
            self._sigma.update(moments.inputs.times(1 / moments.rows), n=weight * call.n * batch.n)
        assert self._sigma.matrix is not None
        outputs = torch.cat([call.output for call in batch.calls])
        found = chain.factors(self._sigma.matrix, likelihood.mean_fisher(outputs))
        for layer, (inputs, errors) in zip(chain.layers, found, strict=True):
            block = self.blocks[layer.name]
            assert isinstance(block, KroneckerBlock)
            block.set(inputs, errors)

    def state_dict(self) -> dict[str, Any]:
        """Return the blocks, by module name, and plain parameters, by name."""
        return {
            "layers": {name: block.state_dict() for name, block in self.blocks.items()},
            "plain": {name: plain.state_dict() for name, plain in self.plain.items()},
            "sigma": self._sigma.state_dict(),
        }

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the state can be loaded; layers may have been dropped since."""
        entries(state, where, self.state_dict())
        layers, plain = state["layers"], state["plain"]
        kept = [name for name in self.blocks if isinstance(layers, Mapping) and name in layers]
        lost = [block.layer.named for name, block in self.blocks.items() if name not in kept]
        others = [*self.plain, *(name for named in lost for name in named)]
        dropped = isinstance(plain, Mapping) and all(name in plain for name in others)
        entries(layers, f"{where}.layers", kept if dropped else self.blocks)
        entries(plain, f"{where}.plain", others)
        for name in kept:
            self.blocks[name].check_state(layers[name], f"{where}.layers.{name}")
        params = {name: block.param for name, block in self.plain.items()}
        params |= {name: p for layer in lost for name, p in layer.items()}
        for name, p in params.items():
            self._without(p).check_state(plain[name], f"{where}.plain.{name}")
        first = next(iter(self.blocks.values()), None)
        shape = (0, 0) if first is None else first.layer.factor_shapes[0]
        self._sigma.check_state(state["sigma"], f"{where}.sigma", shape)
        if self.chain is None and state["sigma"]["version"] > 0:
            raise InvalidInputError(f"{where}.sigma must be empty without source='propagated'.")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a checked state."""
        for name in [name for name in self.blocks if name not in state["layers"]]:
            self._drop(name)
        for name, block in self.blocks.items():
            block.load_state_dict(state["layers"][name])
        for name, plain in self.plain.items():
            plain.load_state_dict(state["plain"][name])
        if self.chain is not None:
            self._sigma.load_state_dict(state["sigma"], self.chain.layers[0].weight)
        self._set_scale()


def _whole(d: Tensor, parts: Sequence[Tensor]) -> Tensor | None:
    """Return a matrix if the parts are all of it, and views of it."""
    place = d.untyped_storage().data_ptr()
    views = all(part.untyped_storage().data_ptr() == place for part in parts)
    return d if views and sum(part.numel() for part in parts) == d.numel() else None
