"""Steps whose length is measured along the direction; some of them are verified."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from natgrad.optim import statistics
from natgrad.optim._capture.batch import Batch
from natgrad.optim._steps.direction import Backup, Direction, shrink, shrinkage
from natgrad.optim._steps.ruler import Ruler
from natgrad.optim.momentum import Momentum
from natgrad.optim.statistics import StepStatistics, Verdict
from natgrad.optim.step_length import Closure

Marks = list[tuple[str, float]]
"""When each part of a step ended."""


class Measured:
    """Takes steps of measured length, and undoes those that raise the loss.

    Args:
        ruler: Measures lengths, and what a step achieved.
        params: The parameters.
        reject: Undo a step that raises the loss by more than this fraction.
    """

    def __init__(self, ruler: Ruler, params: Sequence[Tensor], reject: float) -> None:
        self.ruler, self.reject = ruler, reject
        self.follow(params)

    def follow(self, params: Sequence[Tensor]) -> None:
        """Take other parameters."""
        self.params, self._backup = params, Backup(params)

    def take(
        self,
        batch: Batch,
        direction: Direction,
        rate: float,
        *,
        momentum: Momentum | None,
        past: Momentum | None,
        groups: Sequence[Mapping[str, Any]],
        closure: Closure | None,
        seen: StepStatistics,
        marks: Marks,
    ) -> None:
        """Step along a direction, and fill in the statistics.

        Args:
            batch: The batch.
            direction: The direction.
            rate: Factor on the length.
            momentum: The average from which the direction was computed, if any.
            past: The average that holds past lengths, if any.
            groups: Of parameters, for their weight decay.
            closure: Computes a custom loss again.
            seen: What is known of this step; the rest is filled in.
            marks: When each part of the step ended.
        """
        if momentum:
            direction.meet(batch.total)
        disturbed = direction.disturbed if self.ruler.rule._measures else []
        kept = direction.params if seen.refreshed else disturbed
        self._backup.save(kept)
        try:
            length = self.ruler.length(
                batch,
                direction,
                rate,
                damping=seen.damping,
                loss=seen.loss,
                verified=seen.refreshed,
                usual=past.shorten if past else None,
            )
        finally:
            self._backup.restore(disturbed)
        marks.append(("length", statistics.clock()))
        direction.move(length.value)
        marks.append(("update", statistics.clock()))
        verdict = Verdict()
        if seen.refreshed:
            verdict = self.ruler.verify(
                batch,
                length,
                loss=seen.loss,
                closure=closure,
                params=self.params,
                reject=self.reject,
            )
            marks.append(("ratio", statistics.clock()))
        if verdict.rejected:
            self._backup.restore(kept)
        else:
            shrink(shrinkage(groups, None))
        model, rejected = length.model, verdict.rejected
        if momentum:
            # Lengths of single layers are inside d; the share says what part of a step they make.
            part = model.share / (direction.depth * model.alpha) if model.alpha else 0.0
            # Below half the slope of the average, the minimum along it is above where one stands.
            lost = rejected or direction.batch_slope < direction.slope / 2
            momentum.advance(1.0 if lost else length.value * part)
        seen.predicted, seen.actual, seen.ratio = length.predicted, verdict.actual, verdict.ratio
        seen.length, seen.share, seen.rejected = length.value, model.share, rejected
        seen.step_norm = 0.0 if rejected else length.value * math.sqrt(direction.square)
        seen.notes = length.notes + verdict.notes
