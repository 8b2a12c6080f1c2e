"""From gradients to directions: block by block."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from natgrad.likelihoods import Likelihood
from natgrad.optim.batch import Batch
from natgrad.optim.blocks import DiagonalBlock, KroneckerBlock
from natgrad.optim.chain import Chain
from natgrad.optim.direction import Direction, Part
from natgrad.optim.factors import Factor
from natgrad.optim.layers import Coverage
from natgrad.optim.plain import PlainBlock


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
                    block.update(batch.calls, batch.weights)
                elif block.layer.weight.grad is not None and not block.ready:
                    hidden |= self._drop(name)
        for name, plain in self.plain.items():
            if all(name in call.traces for call in batch.calls):
                pairs = zip(batch.calls, batch.weights, strict=True)
                plain.update(sum(w * call.traces[name] for call, w in pairs), batch.n)
        return hidden

    @property
    def settled(self) -> set[str]:
        """Return the layers whose error factor will never change."""
        return {
            name
            for name, block in self.blocks.items()
            if isinstance(block, KroneckerBlock) and block.errors.constant
        }

    def refresh(self, damping: float) -> None:
        """Bring the inverses up to date."""
        for block in (*self.blocks.values(), *self.plain.values()):
            if block.known:
                block.refresh(damping)

    def direction(self, batch: Batch) -> Direction:
        """Return the direction for the gradients that `.grad` holds."""
        single = batch.calls[0].single if batch.n == 1 else {}
        parts, slopes = [], []
        for name, block in self.blocks.items():
            g = block.layer.gradient(self._gradients.get(name)) if block.ready else None
            if g is None:
                continue
            if block.layer.bias is not None:
                self._gradients[name] = g
            g = g if batch.total == 1 else g / batch.total
            d = block.direction(g, single.get(name))
            slopes.append(torch.dot(g.reshape(-1), d.reshape(-1)))
            parts.append((list[Tensor](block.layer.parameters), block.layer.split(d)))
        if plain := self._plain_part(batch):
            params, tensors, slope = plain
            parts.append((params, tensors))
            slopes.append(slope)
        values = torch.stack(slopes).tolist() if slopes else []
        return Direction([Part(*part, slope) for part, slope in zip(parts, values, strict=True)])

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
            self._sigma.update(moments.inputs / moments.rows, weight * call.n * batch.n)
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

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state, which may have dropped layers since."""
        for name in [name for name in self.blocks if name not in state["layers"]]:
            self._drop(name)
        for name, block in self.blocks.items():
            block.load_state_dict(state["layers"][name])
        for name, plain in self.plain.items():
            plain.load_state_dict(state["plain"][name])
        like = next(iter(self.coverage.layers.values())).weight if self.coverage.layers else None
        if like is not None:
            self._sigma.load_state_dict(state["sigma"], like)
