"""What an optimizer step did, for the user to read."""

import time
from dataclasses import dataclass, field

__all__ = ["StepStatistics", "clock"]

clock = time.perf_counter
"""The clock that times the parts of a step; set it to `time.process_time` on a shared machine."""


@dataclass
class StepStatistics:
    """One step of the optimizer.

    Losses are averages over the samples of the batch, whatever the reduction.

    Attributes:
        step: Number of the step, from 1.
        loss: Loss of the batch before the step; None under a custom loss without closure.
        predicted: Decrease that the quadratic model predicts, on the samples that it saw.
        actual: Decrease that was measured on the same samples; None if it was not measured.
        ratio: ρ = actual / predicted. If the predicted decrease is below the model's quadratic
            term, that term replaces it. None if `actual` is None, or if rounding hides it.
        damping: λ of the step.
        length: Factor on the direction, learning rate included.
        share: αL, the length divided by the equal share 1/L, without learning rate.
        gradient_norm: Norm of the gradient of the average loss.
        step_norm: Norm of the change of the parameters; 0 if it was undone.
        refreshed: Whether factors and inverses were updated.
        rejected: Whether the step was undone because it raised the loss.
        notes: What could not be done, and why.
        seconds: Time spent in each part of the step.

    Example:
        >>> StepStatistics(step=3, loss=0.5).scalars()["loss"]
        0.5
    """

    step: int = 0
    loss: float | None = None
    predicted: float = 0.0
    actual: float | None = None
    ratio: float | None = None
    damping: float = 0.0
    length: float = 0.0
    share: float = 0.0
    gradient_norm: float = 0.0
    step_norm: float = 0.0
    refreshed: bool = False
    rejected: bool = False
    notes: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def scalars(self) -> dict[str, float]:
        """Return the known numbers as a flat dictionary, for TensorBoard or any other logger.

        Example:
            >>> sorted(StepStatistics(step=3, loss=0.5, seconds={"length": 0.1}).scalars())[:4]
            ['damping', 'gradient_norm', 'length', 'loss']
        """
        names = (
            "loss",
            "predicted",
            "actual",
            "ratio",
            "damping",
            "length",
            "share",
            "gradient_norm",
            "step_norm",
            "refreshed",
            "rejected",
        )
        known = {name: getattr(self, name) for name in names}
        found = {name: float(value) for name, value in known.items() if value is not None}
        return found | {f"seconds/{part}": spent for part, spent in self.seconds.items()}


@dataclass(frozen=True)
class Verdict:
    """What a step achieved.

    Attributes:
        actual: Decrease of the loss; None if it could not be measured.
        ratio: ρ; None if it is not known.
        rejected: Whether the step must be undone.
        notes: What could not be done, and why.
    """

    actual: float | None = None
    ratio: float | None = None
    rejected: bool = False
    notes: list[str] = field(default_factory=list)
