"""From gradients to directions: block by block."""

import statistics
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from natgrad.errors import InvalidInputError
from natgrad.likelihoods import Likelihood
from natgrad.optim._capture.batch import Batch
from natgrad.optim._curvature.block import DiagonalBlock, KroneckerBlock
from natgrad.optim._curvature.factor import Factor
from natgrad.optim._curvature.inverse import Dense
from natgrad.optim._curvature.keeper import Keeper
from natgrad.optim._curvature.plain import PlainBlock
from natgrad.optim._curvature.propagated import Chain
from natgrad.optim._direction import Direction, Part
from natgrad.optim._distributed import World
from natgrad.optim._layers.coverage import Coverage
from natgrad.optim._layers.linear import wide
from natgrad.optim._states import entries


class BlockDiagonal:
    """One block of the Fisher for each layer, and plain steps for other parameters.

    Args:
        coverage: The model's layers and other parameters; layers that turn out to be used behind
            the hooks' back are moved to the others.
        blocks: By module name.
        memory: How many past data are remembered.
        chain: Computes the factors of a linear network, [BLH18] (14)–(15).
    """

    def __init__(
        self,
        coverage: Coverage,
        blocks: Mapping[str, KroneckerBlock | DiagonalBlock],
        *,
        memory: float,
        chain: Chain | None = None,
    ) -> None:
        self.coverage, self.blocks, self.memory = coverage, dict(blocks), memory
        self.plain = {name: PlainBlock(p, memory) for name, p in coverage.others.items()}
        self.chain, self._sigma = chain, Factor(memory)
        self._gradients: dict[str, Tensor] = {}

    def update(self, batch: Batch, likelihood: Likelihood) -> dict[str, str]:
        """Blend in the statistics of a batch; return parameters that lost their factors, and why.

        The only reason there is: a layer got a gradient although nothing passed through its
        forward, because other code reads its weight (`torch.nn.MultiheadAttention` does).
        """
        hidden: dict[str, str] = {}
        if self.chain is not None:
            self._propagate(self.chain, batch, likelihood)
        else:
            for name, block in list(self.blocks.items()):
                if all(block.wants(call) for call in batch.calls):
                    block.update(batch)
                elif block.layer.weight.grad is not None and not block.ready:
                    hidden |= self._drop(name)
        for name, plain in self.plain.items():
            if all(name in call.traces for call in batch.calls):
                pairs = zip(batch.calls, batch.weights, strict=True)
                (trace,) = batch.world.sum([sum(w * call.traces[name] for call, w in pairs)])
                plain.update(trace, batch.n)
        return hidden

    @property
    def settled(self) -> set[str]:
        """Return the layers whose error factor will never change."""
        return {
            name
            for name, block in self.blocks.items()
            if isinstance(block, KroneckerBlock) and block.errors.constant
        }

    def refresh(self, damping: float, world: World) -> None:
        """Bring the inverses up to date; the processes divide the blocks among them."""
        for plain in self.plain.values():
            plain.refresh(damping)
        sent: list[tuple[int, Keeper]] = []
        for i, block in enumerate(b for b in self.blocks.values() if b.known):
            owner = i % world.size
            sent += [(owner, k) for k in block.refresh(damping, here=owner == world.rank)]
        for owner, keeper in sent:
            assert isinstance(keeper.inverse, Dense)
            world.send([keeper.inverse.matrix], owner)

    @property
    def scale(self) -> float:
        """Return the geometric mean over layers of a block's mean eigenvalue, at the refresh."""
        means = [block.mean for block in self.blocks.values() if block.mean > 0]
        return statistics.geometric_mean(means) if means else 0.0

    def direction(self, batch: Batch, norms: Mapping[Tensor, float] | None) -> Direction:
        """Return the direction for the gradients that `.grad` holds.

        Args:
            batch: The batch.
            norms: Norms of the gradients, by parameter; None if they are not of this batch alone,
                and so never those of a single datum.
        """
        single = batch.calls[0].single if batch.n == 1 and norms is not None else {}
        parts: list[Part] = []
        pending: list[tuple[list[Tensor], list[Tensor], Tensor]] = []
        for name, block in self.blocks.items():
            if not block.ready or block.layer.weight.grad is None:
                continue
            if isinstance(block, KroneckerBlock) and norms is not None and name in single:
                outer = block.outer(single[name], batch.total, norms)
                if outer is not None:
                    parts.append(outer)
                    continue
            pending.append(self._dense(name, block, batch.total))
        if plain := self._plain_part(batch):
            pending.append(plain)
        values = torch.stack([slope for _, _, slope in pending]).tolist() if pending else []
        for (params, tensors, _), slope in zip(pending, values, strict=True):
            parts.append(Part(params, tensors, slope))
        return Direction(parts)

    def _dense(
        self, name: str, block: KroneckerBlock | DiagonalBlock, total: float
    ) -> tuple[list[Tensor], list[Tensor], Tensor]:
        g = block.layer.gradient(self._gradients.get(name))
        assert g is not None
        own = g.dtype
        if block.layer.bias is not None:
            self._gradients[name] = g
        g = wide(g if total == 1 else g / total)
        d = block.direction(g)
        slope = torch.dot(g.reshape(-1), d.reshape(-1))
        pairs = zip(block.layer.parameters, block.layer.split(d.to(own)), strict=True)
        moved = [(p, part) for p, part in pairs if p.grad is not None]
        return [p for p, _ in moved], [part for _, part in moved], slope

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
        dropped = self.coverage.drop(name, reason)
        self.plain |= {key: PlainBlock(p, self.memory) for key, p in dropped.items()}
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
        """Raise unless a state can be loaded; it may have dropped layers since."""
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
        for name in others:
            PlainBlock.check_state(plain[name], f"{where}.plain.{name}")
        first = next(iter(self.blocks.values()), None)
        shape = (0, 0) if first is None else first.layer.factor_shapes[0]
        self._sigma.check_state(state["sigma"], f"{where}.sigma", shape)
        if self.chain is None and state["sigma"]["version"] > 0:
            raise InvalidInputError(f"{where}.sigma must be empty without source='propagated'.")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checked state."""
        for name in [name for name in self.blocks if name not in state["layers"]]:
            self._drop(name)
        for name, block in self.blocks.items():
            block.load_state_dict(state["layers"][name])
        for name, plain in self.plain.items():
            plain.load_state_dict(state["plain"][name])
        if self.chain is not None:
            self._sigma.load_state_dict(state["sigma"], self.chain.layers[0].weight)
