"""One layer's block of the Fisher: a Kronecker product, [BLH18] (10) and (20), or a diagonal."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from natgrad.optim.capture import Call
from natgrad.optim.damping import Split, ridges
from natgrad.optim.factors import Factor
from natgrad.optim.inverses import Keeper, Solver
from natgrad.optim.layers import Layer


class KroneckerBlock:
    """Λ ⊗ Λ̃ of one layer, with the inverses of both factors.

    Args:
        layer: The layer.
        memory: How many past data the factors remember.
        split: How the factors share the damping.
        solver: How the factors are inverted.
        power: −1 for the natural gradient, −½ for square-root whitening ([BLH18] §6).
    """

    def __init__(
        self, layer: Layer, *, memory: float, split: Split, solver: Solver, power: float = -1.0
    ) -> None:
        self.layer, self.split = layer, split
        self.inputs, self.errors = Factor(memory), Factor(memory)
        self.right, self.left = Keeper(solver, power=power), Keeper(solver, power=power)

    def wants(self, call: Call) -> bool:
        """Return whether a call has moments of this layer."""
        moments = call.moments.get(self.layer.name)
        return moments is not None and (moments.errors is not None or moments.constant_errors)

    @property
    def known(self) -> bool:
        """Return whether both factors have been estimated."""
        return self.inputs.matrix is not None and self.errors.matrix is not None

    @property
    def ready(self) -> bool:
        """Return whether both factors have been inverted."""
        return self.left.inverse is not None

    def update(self, calls: Sequence[Call], weights: Sequence[float]) -> None:
        """Blend in the moments of a batch, which may have come in several calls.

        Args:
            calls: The criterion's calls.
            weights: Weight of one datum of each in the average over all data.
        """
        seen = [call.moments[self.layer.name] for call in calls]
        n = sum(call.n for call in calls)
        per_row = [w / sum(v * m.rows for v, m in zip(weights, seen, strict=True)) for w in weights]
        self.inputs.update(*_average([(m.inputs, m.input_rows) for m in seen], per_row, n))
        if not seen[0].constant_errors:
            self.errors.update(*_average([(m.errors, m.error_rows) for m in seen], weights, n))
        elif not self.errors.constant and seen[0].errors is not None:
            self.errors.fix(seen[0].errors / calls[0].n)

    def refresh(self, damping: float) -> None:
        """Invert both factors under this damping."""
        inputs, errors = self.inputs.mean_eigenvalue(), self.errors.mean_eigenvalue()
        right, left = ridges(self.split, damping, inputs, errors)
        self.right.refresh(self.inputs, right)
        self.left.refresh(self.errors, left)

    def direction(self, g: Tensor, x: Tensor | None = None) -> Tensor:
        """Return (Λ̃ + γ̃)⁻¹ g (Λ + γ)⁻¹, (20) without α/L.

        Args:
            g: The gradient, `(n_out, n_in)`.
            x: What entered the layer, if that may have been a single row: then g = e x̄ᵀ, and two
                products of a matrix and a vector replace two of matrices. [BLH18] §3.
        """
        assert self.left.inverse is not None
        assert self.right.inverse is not None
        row = None if x is None else self.layer.input_rows(x).to(g)
        if row is None or len(row) != 1:
            return self.left.inverse.left(self.right.inverse.right(g))
        row = torch.cat([row, row.new_ones(1, 1)], dim=1) if self.layer.bias is not None else row
        peak = int(row.abs().argmax())
        if not float(row[0, peak]):
            return torch.zeros_like(g)
        error = g[:, peak : peak + 1] / row[0, peak]
        return self.left.inverse.left(error) @ self.right.inverse.right(row)

    def set(self, inputs: Tensor, errors: Tensor) -> None:
        """Replace both factors."""
        for factor, matrix in ((self.inputs, inputs), (self.errors, errors)):
            factor.matrix, factor.change = matrix, None
            factor.version += 1

    def state_dict(self) -> dict[str, Any]:
        """Return the factors and their inverses."""
        return {
            "inputs": self.inputs.state_dict(),
            "errors": self.errors.state_dict(),
            "right": self.right.state_dict(),
            "left": self.left.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state."""
        like = self.layer.weight
        self.inputs.load_state_dict(state["inputs"], like)
        self.errors.load_state_dict(state["errors"], like)
        self.right.load_state_dict(state["right"], like)
        self.left.load_state_dict(state["left"], like)


class DiagonalBlock:
    """The diagonal of one layer's Fisher block, [BLH18] §6: average squares of its gradients.

    A weight used at several positions of one datum counts each by itself.

    Args:
        layer: The layer.
        memory: How many past data the average remembers.
    """

    def __init__(self, layer: Layer, *, memory: float) -> None:
        self.layer, self.squares = layer, Factor(memory)
        self._damping = 0.0

    def wants(self, call: Call) -> bool:
        """Return whether a call has moments of this layer."""
        moments = call.moments.get(self.layer.name)
        return moments is not None and moments.squares is not None

    @property
    def known(self) -> bool:
        """Return whether the squares have been estimated."""
        return self.squares.matrix is not None

    ready = known

    def update(self, calls: Sequence[Call], weights: Sequence[float]) -> None:
        """Blend in the squares of a batch."""
        seen = [(call.moments[self.layer.name].squares, None) for call in calls]
        self.squares.update(*_average(seen, weights, sum(call.n for call in calls)))

    def refresh(self, damping: float) -> None:
        """Take this damping."""
        self._damping = damping

    def direction(self, g: Tensor, x: Tensor | None = None) -> Tensor:
        """Return g / (diag F + λ), entry by entry; zero where the Fisher is and λ = 0."""
        assert self.squares.matrix is not None
        scale = self.squares.matrix + self._damping
        return torch.where(scale > 0, g / scale, 0.0)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and the damping in use."""
        return {"squares": self.squares.state_dict(), "damping": self._damping}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take a state."""
        self.squares.load_state_dict(state["squares"], self.layer.weight)
        self._damping = state["damping"]


def _average(
    sums: Sequence[tuple[Tensor | None, Tensor | None]], weights: Sequence[float], n: int
) -> tuple[Tensor, int, Tensor | None]:
    """Return the weighted sum, the number of data, and its rows if it came from one call."""
    total, rows = sums[0]
    assert total is not None
    total = total.mul_(weights[0])
    for (more, _), weight in zip(sums[1:], weights[1:], strict=True):
        assert more is not None
        total.add_(more, alpha=weight)
    scaled = rows * weights[0] ** 0.5 if rows is not None and len(sums) == 1 else None
    return total, n, scaled
