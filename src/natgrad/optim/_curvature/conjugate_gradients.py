"""The natural direction by conjugate gradients on Fisher products, for comparison."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

from natgrad.errors import UnsupportedError
from natgrad.likelihoods import Likelihood
from natgrad.optim._capture.batch import Batch
from natgrad.optim._states import entries, real
from natgrad.optim._steps.direction import Direction, Part


class ConjugateGradients:
    """(F + λ)⁻¹g with the whole Fisher F of the batch, without approximation. [BLH18] §6.

    Each iteration multiplies by F = Jᵀ F_out J: one forward-mode and one backward pass. All
    parameters form one block, whatever their layer.

    Args:
        model: The model.
        likelihood: The likelihood.
        iterations: Largest number of iterations.
        tolerance: Stop when the residual has shrunk by this factor.
    """

    def __init__(
        self, model: Module, likelihood: Likelihood, *, iterations: int, tolerance: float
    ) -> None:
        self.model, self.likelihood = model, likelihood
        self.iterations, self.tolerance = iterations, tolerance
        self.settled: set[str] = set()
        self.starts: dict[str, float] = {}
        self.away: set[Tensor] = set()
        self.owners: dict[str, int] = {}
        self.holders: dict[Tensor, int] = {}
        self.scale = 0.0  # no blocks to take it from
        self._damping = 0.0

    def observe(self, total: float) -> None:
        """Do nothing: there is no average of gradients."""

    def update(self, batch: Batch, likelihood: Likelihood) -> dict[str, str]:
        """Do nothing: the Fisher is computed anew at each step."""
        return {}

    def refresh(self, damping: float, raised: Mapping[str, float]) -> None:
        """Take this damping; there are no blocks with their own."""
        self._damping = damping

    def begin(self, rows: object) -> set[Tensor]:
        """Return no parameters: all move by `.grad`."""
        return set()

    def direction(self, batch: Batch, norms: Mapping[Tensor, float] | None) -> Direction:
        """Return the direction for the gradients that `.grad` holds.

        Args:
            batch: The batch.
            norms: Norms of the gradients; not needed.

        Raises:
            UnsupportedError: If the model cannot be run again on the batch.
        """
        if len(batch.calls) != 1 or batch.calls[0].replay is None:
            raise UnsupportedError(
                "conjugate gradients need one batch whose outputs go straight from the model to "
                "the criterion. Try method='kronecker'."
            )
        call, replay = batch.calls[0], batch.calls[0].replay
        moving = {name: p for name, p in self.model.named_parameters() if p.grad is not None}
        names = list(moving)
        pull = replay.pullback(names)

        def product(v: list[Tensor]) -> list[Tensor]:
            push = replay.velocity(dict(zip(names, v, strict=True)))
            pulled = pull(call.likelihood.fisher_product(call.output, push) / call.n)
            return list(torch._foreach_add(pulled, v, alpha=self._damping))

        g = [p.grad / batch.total for p in moving.values() if p.grad is not None]
        d = solve(product, g, self.iterations, self.tolerance)
        return Direction([Part(list(moving.values()), d, _dot(g, d))])

    def state_dict(self) -> dict[str, Any]:
        """Return the damping in use."""
        return {"damping": self._damping}

    def check_state(self, state: Any, where: str) -> None:
        """Raise unless the state can be loaded."""
        entries(state, where, ("damping",))
        real(state["damping"], f"{where}.damping", low=0)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a checked state."""
        self._damping = state["damping"]


def solve(
    product: Callable[[list[Tensor]], list[Tensor]],
    b: list[Tensor],
    iterations: int,
    tolerance: float,
) -> list[Tensor]:
    """Return x with product(x) ≈ b by conjugate gradients from zero, on lists of tensors.

    Example:
        >>> solve(lambda v: [4 * v[0]], [torch.tensor([8.0])], 1, 0.0)
        [tensor([2.])]
    """
    x = [torch.zeros_like(t) for t in b]
    residual = [t.clone() for t in b]
    search = [t.clone() for t in b]
    size = first = _dot(residual, residual)
    for _ in range(iterations):
        if size <= tolerance**2 * first or size == 0:
            break
        image = product(search)
        curvature = _dot(search, image)
        if curvature <= 0:  # rounding: the Fisher is positive semi-definite
            break
        torch._foreach_add_(x, search, alpha=size / curvature)
        torch._foreach_add_(residual, image, alpha=-size / curvature)
        size, before = _dot(residual, residual), size
        torch._foreach_mul_(search, size / before)
        torch._foreach_add_(search, residual)
    return x


def _dot(a: list[Tensor], b: list[Tensor]) -> float:
    return sum(float((s.double() * t.double()).sum()) for s, t in zip(a, b, strict=True))
