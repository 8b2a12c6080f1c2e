"""One step on trial: how long it is, what it promises, and what it achieved."""

import math
from collections.abc import Callable
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from natgrad._checks import describe
from natgrad.errors import DtypeError, NonFiniteError
from natgrad.optim._capture.batch import Batch
from natgrad.optim._direction import Direction
from natgrad.optim._ruler import Ruler, equal_shares
from natgrad.optim.damping import Damping
from natgrad.optim.momentum import Momentum
from natgrad.optim.statistics import StepStatistics
from natgrad.optim.step_length import QuadraticModel

Closure = Callable[[], Any]


# Part of its length that a step of a single datum takes. All of it would fit the datum, and undo
# what others have asked for: from some starts the loss then grows a hundredfold, with ½ to ⅕ of it
# from none.
_SINGLE = 1 / 3


class Trial:
    """Sets the length of a step from the quadratic model, and compares its promise with the loss.

    Args:
        ruler: Measures along the direction.
        damping: The rule, which says what to undo.
        momentum: Knows how long steps usually are; None for lengths as the model gives them.
        foreign: Whether the loss is not the likelihood itself.
    """

    def __init__(
        self, ruler: Ruler, damping: Damping, momentum: Momentum | None, *, foreign: bool
    ) -> None:
        self.ruler, self.damping, self.foreign = ruler, damping, foreign
        self.momentum = momentum

    def lengthen(
        self, batch: Batch, direction: Direction, rate: float, stats: StepStatistics
    ) -> QuadraticModel:
        """Return the quadratic model, and note the step's length; the parameters may have moved.

        Args:
            batch: The batch.
            direction: d.
            rate: Factor on the length that the model asks for.
            stats: Takes length, share, predicted decrease and norm.

        Raises:
            NonFiniteError: If the model promises something that is not a number.
        """
        if stats.refreshed:
            self.ruler.reproduces(batch)  # can only be found out before the step
        model = self.ruler.model(batch, direction, stats.damping)
        if model is None:
            stats.notes.append(
                "the model does not reproduce its outputs, or they do not go straight to the "
                "criterion: equal shares instead of the quadratic model"
            )
            model = equal_shares(direction)
        alpha = model.alpha if self.momentum is None else self.momentum.shorten(model.alpha)
        if batch.n == 1 and model.pieces is not None:
            alpha *= _SINGLE
        stats.share, stats.length = model.share, rate * alpha
        stats.predicted = model.decrease(stats.length)
        if not math.isfinite(stats.predicted):
            raise NonFiniteError(
                f"the quadratic model overflows along the direction of step {stats.step}: the step "
                "is refused and the weights are untouched. Raise the damping or its floor."
            )
        unjudged = not stats.refreshed and not self.foreign and model.pieces is not None
        if unjudged and stats.loss is not None and not 0 <= stats.predicted <= stats.loss:
            self._believe(model, stats)
        stats.step_norm = stats.length * math.sqrt(direction.square)
        return model

    def _believe(self, model: QuadraticModel, stats: StepStatistics) -> None:
        """Shorten a step that nobody will judge until its promise can be believed.

        More than the whole loss is promised to a gradient far from what the factors have seen, and
        an increase where an average of gradients has little to do with this batch's.
        """
        most = stats.loss if stats.loss is not None and stats.loss > 0 else math.inf
        length = model.shorten(stats.length, most)
        if length < stats.length:
            kind = "an increase" if stats.predicted < 0 else "more than the whole loss"
            stats.length, stats.predicted = length, model.decrease(length)
            stats.notes.append(f"the step promised {kind}: shortened")

    def judge(
        self,
        batch: Batch,
        model: QuadraticModel,
        closure: Closure | None,
        params: list[Tensor],
        stats: StepStatistics,
    ) -> float | None:
        """Compare the loss after the step with the prediction, and return what λ adapts to.

        Returns:
            ρ; −∞ for a step that must not be repeated; None where ρ cannot be known.
        """
        losses = self._losses(batch, model, closure, params, stats)
        if losses is None:
            stats.notes.append(
                "the loss after the step cannot be measured, so the damping does not adapt: pass a "
                "closure to step()"
            )
            return None
        before, after = losses
        stats.actual = before - after
        # At the minimum of the model the decrease is its quadratic term. Momentum, or a rate above
        # one, may promise less, or even an increase; what the model missed is then measured
        # against that term.
        unit = max(stats.predicted, stats.length**2 * model.bend / 2)
        if unit <= self.ruler.rounding(batch, before):
            stats.notes.append("the predicted decrease is lost in rounding: the damping stays")
            return None
        stats.ratio = 1 + (stats.actual - stats.predicted) / unit
        limit = math.inf if math.isinf(self.damping.reject) else self.damping.reject * abs(before)
        stats.rejected = not after - before <= limit
        if stats.rejected:
            stats.step_norm = 0.0
        return -math.inf if stats.rejected else stats.ratio

    def _losses(
        self,
        batch: Batch,
        model: QuadraticModel,
        closure: Closure | None,
        params: list[Tensor],
        stats: StepStatistics,
    ) -> tuple[float, float] | None:
        """Return the loss before the step and now, on the data that the model is about."""
        if self.foreign:
            if closure is None or stats.loss is None:
                return None
            return stats.loss, _closure_loss(batch, closure, params)
        if not self.ruler.reproduces(batch):
            return None
        if model.pieces is not None:
            return self.ruler.losses(batch, model.pieces)
        now = self.ruler.losses(batch, batch.first(None))
        return None if now is None or stats.loss is None else (stats.loss, now[1])


def mean_loss(batch: Batch, loss: Any) -> float:
    """Return a foreign loss as an average over data."""
    n = sum(call.n for call in batch.calls)
    one = loss.numel() == 1 and not loss.is_complex() if isinstance(loss, Tensor) else False
    if not one and (isinstance(loss, bool) or not isinstance(loss, Real)):
        raise DtypeError(
            f"the closure must return the loss, a tensor with one number, but returned "
            f"{describe(loss)}."
        )
    here = float(loss.detach() if isinstance(loss, Tensor) else loss) / (batch.calls[0].unit * n)
    return batch.world.sum([here / batch.world.size])[0]


def _closure_loss(batch: Batch, closure: Closure, params: list[Tensor]) -> float:
    held = [p.grad for p in params]
    for p in params:
        p.grad = None
    try:
        with torch.enable_grad():
            return mean_loss(batch, closure())
    finally:
        for p, grad in zip(params, held, strict=True):
            p.grad = grad
