"""The batch of one optimizer step, which may have come in several calls of the criterion."""

from collections.abc import Sequence

from torch import Tensor

from natgrad.likelihoods import Likelihood
from natgrad.optim.capture import Call


class Batch:
    """Calls of the criterion that were back-propagated before one step.

    What was differentiated is Σ cᵢ Σₙ ℓₙ over calls i and their data, cᵢ known from the reduction
    and from the derivative that reached each loss; so mean and sum, gradient accumulation, losses
    divided by a number of steps and scaled losses all come out as the same average over data.

    Args:
        calls: The calls, at least one.

    Attributes:
        n: Number of data.
        total: Σ cᵢ nᵢ: dividing by it makes averages over data.
        weights: Weight of one datum of each call in such an average.
    """

    def __init__(self, calls: Sequence[Call]) -> None:
        self.calls = list(calls)
        self.n = sum(call.n for call in calls)
        each = [(call.weight or 0.0) * call.unit for call in calls]
        self.total = sum(c * call.n for c, call in zip(each, calls, strict=True))
        self.weights = [c / self.total if self.total else 0.0 for c in each]

    @property
    def largest(self) -> Call:
        """Return the call with most data."""
        return max(self.calls, key=lambda call: call.n)

    def loss(self) -> float | None:
        """Return the average loss; None under a foreign loss."""
        return self._average([call.loss for call in self.calls])

    def loss_again(self, likelihood: Likelihood) -> float | None:
        """Return the average loss at the present parameters; None if it cannot be had."""
        losses = [
            None
            if call.replay is None or call.y is None
            else likelihood.loss(call.replay.outputs(), call.y)
            for call in self.calls
        ]
        return self._average(losses)

    def _average(self, losses: Sequence[Tensor | None]) -> float | None:
        total = 0.0
        for loss, call, weight in zip(losses, self.calls, self.weights, strict=True):
            if loss is None:
                return None
            total += weight * float(loss) / call.unit
        return total
