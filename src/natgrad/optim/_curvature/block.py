"""Blocks of the Fisher, one per layer: Kronecker products, [BLH18] (10) and (20), or diagonals."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from natgrad.errors import InvalidInputError
from natgrad.likelihoods import Likelihood
from natgrad.optim._capture.batch import Batch, Call
from natgrad.optim._curvature.factor import Factor, average, ridges
from natgrad.optim._curvature.inverse import Dense, Keeper, Solver
from natgrad.optim._curvature.plain import AdamBlock, DiagonalBlock, PlainBlock
from natgrad.optim._curvature.propagated import Chain
from natgrad.optim._direction import Direction, OuterPart, Part
from natgrad.optim._distributed import World
from natgrad.optim._layers.coverage import Coverage
from natgrad.optim._layers.linear import Layer, wide
from natgrad.optim._states import entries, real
from natgrad.optim.damping import Split

FADED = 1e-4
"""Below this fraction of its largest mean eigenvalue a block no longer lowers a relative damping.
If the Fisher vanishes because all labels are fitted, directions then vanish with the gradient."""


OTHERS = "(others)"
"""Name of the part that holds all parameters without a block."""


class KroneckerBlock:
    """Λ ⊗ Λ̃ of one layer, with the inverses of both factors.

    Args:
        layer: The layer.
        memory: How many past samples the factors remember.
        split: How the factors share the damping.
        solver: How the factors are inverted.
        power: −1 for the natural gradient, −½ for square-root whitening ([BLH18] §6).
        keep: Whether to keep the factors after inversion.

    Attributes:
        mean: Mean eigenvalue of Λ times that of Λ̃, at the last refresh.
        peak: The largest mean so far.
        unit: Factor on the damping at the last refresh.
    """

    def __init__(
        self,
        layer: Layer,
        *,
        memory: float,
        split: Split,
        solver: Solver,
        power: float = -1.0,
        keep: bool = True,
    ) -> None:
        self.layer, self.split, self.keep = layer, split, keep
        inputs, errors = layer.sides
        self.inputs, self.errors = Factor(memory, inputs), Factor(memory, errors)
        self.right = Keeper(solver, power=power, cut=inputs is not None)
        self.left = Keeper(solver, power=power, cut=errors is not None)
        self.mean, self.peak, self.unit = 0.0, 0.0, 1.0

    def wants(self, call: Call) -> bool:
        """Return whether a call has moments of this layer."""
        moments = call.moments.get(self.layer.name)
        return moments is not None and (moments.errors is not None or moments.constant_errors)

    @property
    def known(self) -> bool:
        """Return whether both factors have been estimated."""
        return self.inputs.known and self.errors.known

    @property
    def ready(self) -> bool:
        """Return whether both factors have been inverted."""
        return self.left.inverse is not None

    @property
    def settled(self) -> bool:
        """Return whether the error factor will never change."""
        return self.errors.constant

    def update(self, batch: Batch) -> None:
        """Add the moments of a batch to the averages; the batch may have several calls.

        Calls of a criterion that does not depend on the layer, such as one of another head, have no
        errors for it.
        """
        world = batch.world
        pairs = zip(batch.calls, batch.weights, strict=True)
        weights = [weight for call, weight in pairs if self.wants(call)]
        seen = [call.moments[self.layer.name] for call in batch.calls if self.wants(call)]
        inputs, errors = [m.inputs for m in seen], [m.errors for m in seen]
        rows = sum(w * m.rows for w, m in zip(weights, seen, strict=True))
        if world.size > 1:
            (rows,) = world.sum([rows])
        per_row = [w / rows for w in weights]
        self.inputs.update(average(inputs, per_row, world), n=batch.count)
        if not seen[0].constant_errors or len(seen) < len(batch.calls):
            self.errors.update(average(errors, weights, world), n=batch.count)
        elif not self.errors.constant and errors[0] is not None:
            self.errors.fix(errors[0].summed() / batch.calls[0].n)

    def refresh(self, damping: float, *, relative: bool = False, here: bool = True) -> list[Keeper]:
        """Invert both factors with this damping, or allocate memory for the inverses.

        Args:
            damping: λ, in units of the block's mean eigenvalue if it is `relative`.
            relative: Whether the damping is relative.
            here: Whether this process inverts.

        Returns:
            The dense inverses that other processes may need.
        """
        inputs, errors = self.inputs.mean_eigenvalue(), self.errors.mean_eigenvalue()
        self.mean = inputs * errors
        self.peak = max(self.peak, self.mean)
        self.unit = max(self.mean, FADED * self.peak) if relative else 1.0
        damping = damping * self.unit
        right, left = ridges(self.split, damping, inputs, errors)
        if self.layer.one_sided:
            right, left = 0.0, damping
        dense = []
        if self.right.refresh(self.inputs, right, here=here):
            dense.append(self.right)
        if self.left.refresh(self.errors, left, here=here):
            dense.append(self.left)
        if not self.keep:
            self.inputs.forget()
            self.errors.forget()
        return dense

    def direction(self, g: Tensor) -> Tensor:
        """Return (Λ̃ + γ̃)⁻¹ g (Λ + γ)⁻¹, (20) without α/L.

        Args:
            g: The gradient, `(n_out, n_in)`.
        """
        left, right = self.left.product, self.right.product
        assert left is not None
        assert right is not None
        return right.right(left.left(g))

    def outer(self, x: Tensor, total: float, norms: Mapping[Tensor, float]) -> OuterPart | None:
        """Return the direction of a single sample, whose gradient is e x̄ᵀ, [BLH18] §3.

        Two matrix–vector products replace two matrix products, and only the norm of the gradient
        is read.

        Args:
            x: Inputs of the layer.
            total: Divisor that turns `.grad` into the gradient of the average loss.
            norms: Norms of the gradients, by parameter.

        Returns:
            None if the layer got more than one row, or if `.grad` is not that product, for example
            because its entries were clipped.
        """
        weight, bias = self.layer.weight, self.layer.bias
        rows = self.layer.input_rows(x)
        if len(rows) != 1 or not self.layer.rank_one or weight.grad is None:
            return None
        if wide(weight.grad).dtype != weight.dtype:  # half precision, in which vectors lose digits
            return None
        row = rows[0].to(weight.dtype)
        if bias is not None and bias.grad is None:
            return None
        if bias is not None and bias.grad is not None:
            e = bias.grad
        else:
            peak = int(row.abs().argmax())
            e = weight.grad[:, peak] / row[peak] if float(row[peak]) else 0 * weight.grad[:, peak]
        size = math.sqrt(float(torch.dot(e, e)) * float(torch.dot(row, row)))
        if not math.isclose(size, norms[weight], rel_tol=1e-4, abs_tol=1e-30):
            return None
        row = row if bias is None else torch.cat([row, row.new_ones(1)])
        e = e / total
        left, right = self.left.product, self.right.product
        assert left is not None
        assert right is not None
        u = left.left(e[:, None])[:, 0]
        v = right.right(row[None])[0]
        slope = float(e @ u) * float(row @ v)
        layer = self.layer
        kind = {"name": layer.name, "norm": layer.norm, "unit": self.unit}
        return OuterPart(layer.module, layer.parameters, u, v, slope, **kind)

    def set(self, inputs: Tensor, errors: Tensor) -> None:
        """Replace both factors."""
        for factor, matrix in ((self.inputs, inputs), (self.errors, errors)):
            factor.set(matrix)

    def state_dict(self) -> dict[str, Any]:
        """Return the factors and their inverses."""
        return {
            "inputs": self.inputs.state_dict(),
            "errors": self.errors.state_dict(),
            "right": self.right.state_dict(),
            "left": self.left.state_dict(),
            "mean": self.mean,
            "peak": self.peak,
            "unit": self.unit,
        }

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, self.state_dict())
        for name in ("mean", "peak", "unit"):
            real(state[name], f"{where}.{name}", low=0)
        pairs = (("inputs", self.inputs, self.right), ("errors", self.errors, self.left))
        for (name, factor, keeper), shape in zip(pairs, self.layer.factor_shapes, strict=True):
            factor.check_state(state[name], f"{where}.{name}", shape, kept=self.keep)
            side = "right" if keeper is self.right else "left"
            keeper.check_state(state[side], f"{where}.{side}", shape, state[name])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a checked state."""
        like = self.layer.weight
        self.inputs.load_state_dict(state["inputs"], like)
        self.errors.load_state_dict(state["errors"], like)
        self.right.load_state_dict(state["right"], like)
        self.left.load_state_dict(state["left"], like)
        self.mean, self.peak, self.unit = state["mean"], state["peak"], state["unit"]


Block = KroneckerBlock | DiagonalBlock


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

    Attributes:
        settled: Layers whose error factor will never change.
        names: Names of the parts that a direction may have.
        scale: Geometric mean over layers of a block's mean eigenvalue, at the last refresh.
    """

    def __init__(
        self,
        coverage: Coverage,
        blocks: Mapping[str, Block],
        *,
        memory: float,
        relative: bool = False,
        adam: bool = False,
        chain: Chain | None = None,
    ) -> None:
        self.coverage, self.blocks, self.memory = coverage, dict(blocks), memory
        self.relative, self.adam = relative, adam
        self.plain = {name: self._without(p) for name, p in coverage.others.items()}
        self.chain, self._sigma = chain, Factor(memory)
        self.settled: set[str] = set()
        self.names = [*self.blocks, OTHERS]
        self.scale = 0.0

    def _without(self, param: Parameter) -> PlainBlock | AdamBlock:
        return AdamBlock(param) if self.adam else PlainBlock(param, self.memory)

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
                    block.update(batch)
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

    def refresh(self, damping: float, world: World) -> None:
        """Update the inverses; the blocks are divided among the processes."""
        for plain in self.plain.values():
            if isinstance(plain, PlainBlock):
                plain.refresh(damping)
        sent: list[tuple[int, Keeper]] = []
        for i, block in enumerate(b for b in self.blocks.values() if b.known):
            owner = i % world.size
            here = owner == world.rank
            keepers = block.refresh(damping, relative=self.relative, here=here)
            sent += [(owner, keeper) for keeper in keepers]
        if world.size > 1:
            for owner, keeper in sent:
                assert isinstance(keeper.inverse, Dense)
                world.send([keeper.inverse.matrix], owner)
        self._set_scale()

    def _set_scale(self) -> None:
        means = [block.mean for block in self.blocks.values() if block.mean > 0]
        self.scale = statistics.geometric_mean(means) if means else 0.0

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
        for name, block in self.blocks.items():
            if not block.ready or block.layer.weight.grad is None:
                continue
            if norms is not None and name in single:
                outer = block.outer(single[name], batch.total, norms)
                if outer is not None:
                    parts.append(outer)
                    continue
            kind: dict[str, Any] = {"name": name, "norm": block.layer.norm, "unit": block.unit}
            pending.append((*self._dense(block, batch.total), kind))
        if plain := self._plain_part(batch):
            pending.append((*plain, {"name": OTHERS}))
        values = torch.stack([found[2] for found in pending]).tolist() if pending else []
        for (params, tensors, _, kind), slope in zip(pending, values, strict=True):
            parts.append(Part(params, tensors, slope, **kind))
        return Direction(parts)

    def _dense(self, block: Block, total: float) -> tuple[list[Tensor], list[Tensor], Tensor]:
        g = block.layer.gradient()
        assert g is not None
        own = g.dtype
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
