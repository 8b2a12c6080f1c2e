"""The batch of one optimizer step, which may have come in several calls of the criterion."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from natgrad.likelihoods import Likelihood
from natgrad.optim._capture.hooks import Call
from natgrad.optim._distributed import World


@dataclass(frozen=True)
class Piece:
    """The first rows of one call.

    Attributes:
        call: The call.
        rows: How many.
        weight: That of one datum in an average over all pieces.
        output: Their outputs before the step, in single precision or wider.
    """

    call: Call
    rows: int
    weight: float
    output: Tensor

    def outputs_again(self) -> Tensor:
        """Return the outputs at the present parameters."""
        assert self.call.replay is not None
        return self.call.replay.outputs(None if self.rows == self.call.n else self.rows)

    def sum_of_losses(self, likelihood: Likelihood, output: Tensor) -> float:
        """Return the sum of the losses of outputs, which are those of this piece."""
        assert self.call.y is not None
        loss = likelihood.loss(output, self.call.y[: self.rows])
        return float(loss) / likelihood.scale(self.rows)


class Batch:
    """Calls of the criterion that were back-propagated before one step.

    What was differentiated is Σ cᵢ Σₙ ℓₙ over calls i and their data, cᵢ known from the reduction
    and from the derivative that reached each loss; so mean and sum, gradient accumulation, losses
    divided by a number of steps and scaled losses all come out as the same average over data.

    Args:
        calls: The calls, at least one.
        unscaled: What the gradients have been divided by since, as a `GradScaler` does.
        world: The processes that each hold a part of the batch, and average their gradients.

    Attributes:
        n: Number of data, of all processes.
        total: Dividing `.grad` by it makes averages over data.
        weights: Weight of one datum of each call in such an average.
    """

    def __init__(
        self, calls: Sequence[Call], *, unscaled: float = 1.0, world: World | None = None
    ) -> None:
        self.calls, self.world = list(calls), World() if world is None else world
        each = [(call.weight or 0.0) * call.unit / unscaled for call in calls]
        here = sum(c * call.n for c, call in zip(each, calls, strict=True))
        n, total = self.world.sum([sum(call.n for call in calls), here])
        self.n, self.total = int(n), total / self.world.size
        self.weights = [c / total if total else 0.0 for c in each]

    @property
    def largest(self) -> Call:
        """Return the call with most data."""
        return max(self.calls, key=lambda call: call.n)

    def first(self, rows: int | None) -> list[Piece]:
        """Return the first rows of the batch, or all, as pieces of calls.

        To be called before the parameters move.
        """
        left = self.n if rows is None else -(-rows // self.world.size)
        taken: list[tuple[Call, int, float]] = []
        for call, weight in zip(self.calls, self.weights, strict=True):
            if left > 0:
                taken.append((call, min(left, call.n), weight))
                left -= call.n
        (whole,) = self.world.sum([sum(count * weight for _, count, weight in taken)])
        return [Piece(c, count, weight / whole, _wide(c, count)) for c, count, weight in taken]

    def average(self, values: Sequence[float], pieces: Sequence[Piece]) -> float:
        """Return the average over data of a quantity, from its sum over each piece."""
        here = sum(piece.weight * v for piece, v in zip(pieces, values, strict=True))
        return self.world.sum([here])[0]

    def loss(self) -> float | None:
        """Return the average loss; None under a foreign loss."""
        total = 0.0
        for call, weight in zip(self.calls, self.weights, strict=True):
            if call.loss is None:
                return None
            total += weight * float(call.loss) / call.unit
        return self.world.sum([total])[0]


def _wide(call: Call, rows: int) -> Tensor:
    """Return the outputs of some rows; those of autocast are computed again without it."""
    if call.output.dtype in (torch.float32, torch.float64):
        return call.output[:rows]
    if call.replay is None:
        return call.output[:rows].float()
    return call.replay.outputs(None if rows == call.n else rows)
