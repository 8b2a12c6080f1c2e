"""Measurements along a direction: how long a step should be, and what it achieved."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from natgrad.errors import NonFiniteError
from natgrad.likelihoods import Likelihood
from natgrad.likelihoods.base import wide
from natgrad.optim._capture.batch import Batch, Piece, Reproduction
from natgrad.optim._steps.direction import Direction, Part
from natgrad.optim.statistics import Verdict
from natgrad.optim.step_length import UNMEASURED, UNVERIFIED, Closure, Measured, QuadraticModel

# Fraction of the length that a step of a single sample takes. The full length would fit the sample
# and undo earlier steps: from some starts the loss then grows a hundredfold, with fractions of ½
# to ⅕ from none.
_SINGLE = 1 / 3


@dataclass(frozen=True)
class Length:
    """The length of a step.

    Attributes:
        model: The quadratic model.
        value: Factor on the direction, learning rate included.
        predicted: Predicted decrease.
        notes: What could not be done, and why.
    """

    model: QuadraticModel
    value: float
    predicted: float
    notes: list[str] = field(default_factory=list)


class Ruler:
    """Measures along a direction by running the model again on the batch.

    Args:
        rule: The step-length rule.
        custom: Whether the loss is not the likelihood itself.

    Attributes:
        reproduction: Whether a second pass gives the same outputs.
    """

    def __init__(self, rule: Measured, *, custom: bool) -> None:
        self.rule, self.custom = rule, custom
        self.reproduction = Reproduction(rule._rows_of)

    def length(
        self,
        batch: Batch,
        direction: Direction,
        rate: float,
        *,
        damping: float,
        loss: float | None,
        verified: bool,
        usual: Callable[[float], float] | None,
    ) -> Length:
        """Return the length of a step; the direction's `disturbed` parameters may have changed.

        `rate` is the factor on the length that minimizes the model, `loss` the average loss if
        it is known. A step is `verified` if the loss will be measured after it. `usual` shortens α
        to its average. `PerLayer` rescales the parts of the direction.

        Raises:
            NonFiniteError: If the predicted decrease is not a number.
        """
        notes = []
        measures = self.rule._measures and direction.slope > 0
        # Whether outputs can be reproduced can only be tested before the step.
        holds = (verified or measures) and self.reproduction.holds(batch)
        if holds or not measures:
            model = self.rule._model(self, batch, direction, damping)
        else:
            model = QuadraticModel.of_equal_shares(direction)
            notes.append(UNMEASURED)
        alpha = model.alpha if usual is None else usual(model.alpha)
        if batch.n == 1 and model.pieces is not None:
            alpha *= _SINGLE
        value = rate * alpha
        predicted = model.decrease(value)
        if not math.isfinite(predicted):
            raise NonFiniteError(
                "the quadratic model overflows along the direction of the step: the step is "
                "refused and the weights are untouched. Raise the damping or its floor."
            )
        measured = not verified and not self.custom and model.pieces is not None
        if measured and loss is not None and not 0 <= predicted <= loss:
            # A gradient very different from those behind the factors predicts more than the whole
            # loss. An average of gradients that differs much from this one predicts an increase.
            shorter = model.shorten(value, loss if loss > 0 else math.inf)
            if shorter < value:
                kind = "an increase" if predicted < 0 else "a decrease of more than the whole loss"
                notes.append(f"the model predicted {kind}: the step was shortened")
                value, predicted = shorter, model.decrease(shorter)
        return Length(model, value, predicted, notes)

    def verify(
        self,
        batch: Batch,
        length: Length,
        *,
        loss: float | None,
        closure: Closure | None,
        params: Sequence[Tensor],
        reject: float,
    ) -> Verdict:
        """Return how the loss after the step compares with the prediction.

        A `closure` computes a custom loss again, and the gradients of `params` stay as they are. A
        step that raises the loss by more than a fraction `reject` is to be undone.
        """
        losses = self._losses(batch, length.model, loss, closure, params)
        if losses is None:
            return Verdict(notes=[UNVERIFIED])
        before, after = losses
        actual = before - after
        # At the minimum of the model the decrease is its quadratic term. With momentum, or a rate
        # above one, less or even an increase is predicted; what the model missed is then measured
        # against that term.
        unit = max(length.predicted, length.value**2 * length.model.bend / 2)
        if unit <= self._rounding(batch, length.model, before):
            note = "the predicted decrease is lost in rounding: the damping stays"
            return Verdict(actual, notes=[note])
        ratio = 1 + (actual - length.predicted) / unit
        limit = math.inf if math.isinf(reject) else reject * abs(before)
        return Verdict(actual, ratio, rejected=not after - before <= limit)

    def _losses(
        self,
        batch: Batch,
        model: QuadraticModel,
        loss: float | None,
        closure: Closure | None,
        params: Sequence[Tensor],
    ) -> tuple[float, float] | None:
        """Return the loss before the step and now, on the samples of the quadratic model."""
        if self.custom:
            if closure is None or loss is None:
                return None
            return loss, batch.closure_loss(closure, params)
        if not self.reproduction.holds(batch):
            return None
        if model.pieces is not None:
            return batch.losses(model.pieces)
        now = batch.losses(batch.first(None))
        return None if now is None or loss is None else (loss, now[1])

    def sizes(self, pieces: Sequence[Piece]) -> list[float]:
        """Return Σ fᵀFf of each piece, the size of its outputs in the likelihood's metric."""
        return [_square(piece.call.likelihood, piece.output) for piece in pieces]

    def epsilon(self, direction: Direction | Part, pieces: Sequence[Piece], size: float) -> float:
        """Return the step ε along d for difference quotients of the outputs.

        ε moves the outputs by 10 √eps of their own size, or of their velocity if that is larger, in
        the likelihood's metric, where the blocks expect a squared velocity of gᵀd: small enough to
        be a derivative, large enough to rise above rounding. `size` is the outputs' average size.
        """
        small = 10 * math.sqrt(torch.finfo(pieces[0].output.dtype).eps)
        slope = direction.slope
        return min(small * math.sqrt(1 + size / slope), 1.0) if slope > 0 else small

    def velocities(
        self, direction: Direction | Part, pieces: Sequence[Piece], epsilon: float
    ) -> list[Tensor]:
        """Return J d for every piece, by the difference quotient of the outputs."""
        with direction.nudged(epsilon):
            return [(piece.output - piece.outputs_again()) / epsilon for piece in pieces]

    def along(
        self,
        batch: Batch,
        pieces: Sequence[Piece],
        sizes: Sequence[float],
        direction: Direction,
        damping: float,
        epsilon: float,
    ) -> QuadraticModel:
        """Return the quadratic model over pieces; the training pass has computed their outputs."""
        bends, slopes = [], []
        found = self.velocities(direction, pieces, epsilon)
        for piece, velocity in zip(pieces, found, strict=True):
            likelihood = piece.call.likelihood
            product = likelihood.fisher_product(piece.output, velocity)
            bends.append(float((velocity * product).sum()))
            if piece.call.y is not None:
                labels, scale = piece.call.y[: piece.rows], likelihood.scale(piece.rows)
                gradient = likelihood.gradient(piece.output, labels)
                slopes.append(float((gradient * velocity).sum()) / scale)
        bend = damping * direction.damped + batch.average(bends, pieces)
        slope = batch.average(slopes, pieces) if slopes else direction.batch_slope
        alpha = direction.slope / bend if bend > 0 else math.inf
        return QuadraticModel(alpha, slope, bend, pieces, alpha * direction.depth, sizes)

    def _rounding(self, batch: Batch, model: QuadraticModel, loss: float) -> float:
        """Return a change of the loss that rounding of losses and outputs can cause."""
        call = max(batch.calls, key=lambda call: len(call.output))
        pairs = zip(model.pieces or (), model.sizes, strict=False)
        known = [size for piece, size in pairs if piece.call is call and piece.whole]
        size = known[0] if known else _square(call.likelihood, wide(call.output))
        size /= len(call.output)
        if batch.world.size > 1:
            (size,) = batch.sum([size / batch.world.size])
        eps = 10 * torch.finfo(call.output.dtype).eps
        return eps * abs(loss) + eps**2 * size


def _square(likelihood: Likelihood, f: Tensor) -> float:
    """Return Σ fᵀFf over the outputs of a call."""
    # If labels are nearly certain, rounding may give a negative value.
    return max(0.0, float((f * likelihood.fisher_product(f, f)).sum()))
