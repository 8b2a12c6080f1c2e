"""The block of the Fisher of one layer as a Kronecker product, [BLH18] (10) and (20)."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from natgrad.optim._capture.batch import Batch, Call
from natgrad.optim._curvature.factor import MEMORY, Factor, Gram, average, ridges
from natgrad.optim._curvature.inverse import Keeper, Solver
from natgrad.optim._layers.linear import Layer, wide
from natgrad.optim._states import entries, real
from natgrad.optim._steps.direction import OuterPart
from natgrad.optim.damping import Split

FADED = 1e-4
"""Below this fraction of its largest mean eigenvalue a block no longer lowers a relative damping.
If the Fisher vanishes because all labels are fitted, directions then vanish with the gradient."""


class KroneckerBlock:
    """Λ ⊗ Λ̃ of one layer, with the inverses of both factors.

    Args:
        layer: The layer.
        memory: How many past samples the factors remember; None for `MEMORY`, or twice the
            longest side of a layer that sees one row of each sample.
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
        memory: float | None,
        split: Split,
        solver: Solver,
        power: float = -1.0,
        keep: bool = True,
    ) -> None:
        self.layer, self.split, self.keep = layer, split, keep
        inputs, errors = layer.sides
        self.inputs, self.errors = Factor(memory, inputs), Factor(memory, errors)
        self._grows = memory is None
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

    def update(self, batch: Batch, owner: int | None = None) -> None:
        """Add the moments of a batch to the averages; `owner` says which process needs them."""
        inputs, errors, constant = self.gathered(batch, owner)
        self.absorb(inputs, errors, constant, n=batch.count)

    def gathered(self, batch: Batch, owner: int | None) -> tuple[Gram, Gram | None, bool]:
        """Return the average moments of a batch, which may have several calls.

        Calls of a criterion that does not depend on the layer, such as one of another head, have no
        errors for it.

        Args:
            batch: The batch.
            owner: The process that needs them; None for all.

        Returns:
            Those of the inputs, those of the errors (None if they are known), and whether those
            of the errors are constant.
        """
        world = batch.world
        pairs = zip(batch.calls, batch.weights, strict=True)
        weights = [weight for call, weight in pairs if self.wants(call)]
        seen = [call.moments[self.layer.name] for call in batch.calls if self.wants(call)]
        inputs, errors = [m.inputs for m in seen], [m.errors for m in seen]
        rows = sum(w * m.rows for w, m in zip(weights, seen, strict=True))
        if world.size > 1:
            (rows,) = world.sum([rows])
        if self._grows:
            texts = any(call.positions > 1 for call in batch.calls)
            alone = abs(rows - 1) < 1e-6 and not texts  # each sample has one row
            past = max(MEMORY, 2.0 * max(self.layer.shape[-2:])) if alone else MEMORY
            self.inputs.memory = self.errors.memory = past
        per_row = [w / rows for w in weights]
        found = average(inputs, per_row, world, owner)
        if not seen[0].constant_errors or len(seen) < len(batch.calls):
            return found, average(errors, weights, world, owner), False
        known = None if errors[0] is None else Gram(total=errors[0].summed() / batch.calls[0].n)
        return found, known, True

    def absorb(self, inputs: Gram, errors: Gram | None, constant: bool, *, n: float) -> None:
        """Add what `gathered` returned, of n samples, to the averages."""
        self.inputs.update(inputs, n=n)
        if errors is not None and not constant:
            self.errors.update(errors, n=n)
        elif errors is not None and not self.errors.constant:
            self.errors.fix(errors.summed())

    def refresh(self, damping: float, *, relative: bool = False) -> None:
        """Invert both factors with this damping.

        Args:
            damping: λ, in units of the block's mean eigenvalue if it is `relative`.
            relative: Whether the damping is relative.
        """
        inputs, errors = self.inputs.mean_eigenvalue(), self.errors.mean_eigenvalue()
        self.mean = inputs * errors
        self.peak = max(self.peak, self.mean)
        self.unit = max(self.mean, FADED * self.peak) if relative else 1.0
        damping = damping * self.unit
        right, left = ridges(self.split, damping, inputs, errors)
        if self.layer.one_sided:
            right, left = 0.0, damping
        self.right.refresh(self.inputs, right)
        self.left.refresh(self.errors, left)
        if not self.keep:
            self.inputs.forget()
            self.errors.forget()

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
        kind = {"name": layer.name, "norm": layer.norm(), "unit": self.unit}
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
