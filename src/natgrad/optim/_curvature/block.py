"""One layer's block of the Fisher: a Kronecker product, [BLH18] (10) and (20), or a diagonal."""

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from natgrad.optim._capture.batch import Batch
from natgrad.optim._capture.hooks import Call
from natgrad.optim._curvature.factor import Factor
from natgrad.optim._curvature.gram import Gram
from natgrad.optim._curvature.inverse import Solver
from natgrad.optim._curvature.keeper import Keeper
from natgrad.optim._direction import OuterPart
from natgrad.optim._distributed import World
from natgrad.optim._layers.linear import Layer, LinearLayer, wide
from natgrad.optim._states import entries, real
from natgrad.optim.damping import Split, ridges


class KroneckerBlock:
    """Λ ⊗ Λ̃ of one layer, with the inverses of both factors.

    Args:
        layer: The layer.
        memory: How many past data the factors remember.
        split: How the factors share the damping.
        solver: How the factors are inverted.
        power: −1 for the natural gradient, −½ for square-root whitening ([BLH18] §6).
        keep: Whether the factors stay once they are inverted.

    Attributes:
        mean: Mean eigenvalue of Λ times that of Λ̃, at the last refresh.
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
        self.inputs, self.errors = Factor(memory), Factor(memory)
        self.right, self.left = Keeper(solver, power=power), Keeper(solver, power=power)
        self.mean = 0.0

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

    def update(self, batch: Batch) -> None:
        """Blend in the moments of a batch, which may have come in several calls."""
        calls, weights, world = batch.calls, batch.weights, batch.world
        seen = [call.moments[self.layer.name] for call in calls]
        (rows,) = world.sum([sum(w * m.rows for w, m in zip(weights, seen, strict=True))])
        per_row = [w / rows for w in weights]
        self.inputs.update(_average([m.inputs for m in seen], per_row, world), n=batch.n)
        if not seen[0].constant_errors:
            self.errors.update(_average([m.errors for m in seen], weights, world), n=batch.n)
        elif not self.errors.constant and seen[0].errors is not None:
            self.errors.fix(seen[0].errors.summed() / calls[0].n)

    def refresh(self, damping: float, *, here: bool = True) -> list[Keeper]:
        """Invert both factors under this damping, or make room for the inverses.

        Returns:
            Whose dense inverses another process may have to be given.
        """
        inputs, errors = self.inputs.mean_eigenvalue(), self.errors.mean_eigenvalue()
        right, left = ridges(self.split, damping, inputs, errors)
        self.mean = inputs * errors
        if self.layer.one_sided:
            right, left = 0.0, damping
        pairs = ((self.right, self.inputs, right), (self.left, self.errors, left))
        dense = [keeper for keeper, f, ridge in pairs if keeper.refresh(f, ridge, here=here)]
        if not self.keep:
            self.inputs.forget()
            self.errors.forget()
        return dense

    def direction(self, g: Tensor) -> Tensor:
        """Return (Λ̃ + γ̃)⁻¹ g (Λ + γ)⁻¹, (20) without α/L.

        Args:
            g: The gradient, `(n_out, n_in)`.
        """
        return self.right.right(self.left.left(g))

    def outer(self, x: Tensor, total: float, norms: Mapping[Tensor, float]) -> OuterPart | None:
        """Return the direction of a single datum, whose gradient is e x̄ᵀ, [BLH18] §3.

        Two products of a matrix and a vector replace two of matrices, and the gradient is not read
        but for its norm.

        Args:
            x: What entered the layer.
            total: What `.grad` is divided by to be that of the average loss.
            norms: Norms of the gradients, by parameter.

        Returns:
            None if more than one row entered the layer, or `.grad` is not that product: somebody
            may have clipped its entries.
        """
        weight, bias = self.layer.weight, self.layer.bias
        rows = self.layer.input_rows(x)
        if len(rows) != 1 or type(self.layer) is not LinearLayer or weight.grad is None:
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
        u = self.left.left(e[:, None])[:, 0]
        v = self.right.right(row[None])[0]
        slope = float(e @ u) * float(row @ v)
        return OuterPart(self.layer.module, self.layer.parameters, u, v, slope)

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
        }

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless a state can be loaded."""
        entries(state, where, self.state_dict())
        real(state["mean"], f"{where}.mean", low=0)
        pairs = (("inputs", self.inputs, self.right), ("errors", self.errors, self.left))
        for (name, factor, keeper), shape in zip(pairs, self.layer.factor_shapes, strict=True):
            factor.check_state(state[name], f"{where}.{name}", shape, kept=self.keep)
            side = "right" if keeper is self.right else "left"
            keeper.check_state(state[side], f"{where}.{side}", shape, state[name])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checked state."""
        like = self.layer.weight
        self.inputs.load_state_dict(state["inputs"], like)
        self.errors.load_state_dict(state["errors"], like)
        self.right.load_state_dict(state["right"], like)
        self.left.load_state_dict(state["left"], like)
        self.mean = state["mean"]


class DiagonalBlock:
    """The diagonal of one layer's Fisher block, [BLH18] §6: average squares of its gradients.

    A weight used at several positions of one datum counts each by itself.

    Args:
        layer: The layer.
        memory: How many past data the average remembers.

    Attributes:
        mean: Mean of the diagonal at the last refresh.
    """

    def __init__(self, layer: Layer, *, memory: float) -> None:
        self.layer, self.squares = layer, Factor(memory)
        self._damping = self.mean = 0.0

    def wants(self, call: Call) -> bool:
        """Return whether a call has moments of this layer."""
        moments = call.moments.get(self.layer.name)
        return moments is not None and moments.squares is not None

    @property
    def known(self) -> bool:
        """Return whether the squares have been estimated."""
        return self.squares.known

    ready = known

    def update(self, batch: Batch) -> None:
        """Blend in the squares of a batch."""
        seen = [Gram(total=call.moments[self.layer.name].squares) for call in batch.calls]
        self.squares.update(_average(seen, batch.weights, batch.world), n=batch.n)

    def refresh(self, damping: float, *, here: bool = True) -> list[Keeper]:
        """Take this damping."""
        assert self.squares.matrix is not None
        self._damping, self.mean = damping, float(self.squares.matrix.mean())
        return []

    def direction(self, g: Tensor) -> Tensor:
        """Return g / (diag F + λ), entry by entry; zero where the Fisher is and λ = 0."""
        assert self.squares.matrix is not None
        scale = self.squares.matrix + self._damping
        return torch.where(scale > 0, g / scale, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and the damping in use."""
        numbers = {"damping": self._damping, "mean": self.mean}
        return {"squares": self.squares.state_dict(), **numbers}

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless a state can be loaded."""
        entries(state, where, self.state_dict())
        for name in ("damping", "mean"):
            real(state[name], f"{where}.{name}", low=0)
        self.squares.check_state(state["squares"], f"{where}.squares", self.layer.shape)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take a checked state."""
        self.squares.load_state_dict(state["squares"], self.layer.weight)
        self._damping, self.mean = state["damping"], state["mean"]


def _average(sums: Sequence[Gram | None], weights: Sequence[float], world: World) -> Gram:
    """Return the weighted sum, over all processes."""
    pairs = zip(sums, weights, strict=True)
    first, *rest = [gram.times(weight) for gram, weight in pairs if gram is not None]
    found = reduce(Gram.plus, rest, first)
    if world.size > 1:
        found = Gram(total=found.summed())
        world.add_up([found.summed()])
    return found
