"""What an optimizer step did, for the user to read."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

clock = time.perf_counter
"""What the parts of a step are timed with; `time.process_time` on a shared machine."""


@dataclass
class StepStatistics:
    """One step of the optimizer.

    Losses are averages over the data of the batch, whatever the reduction.

    Attributes:
        step: Number of the step, from 1.
        loss: Loss of the batch before the step; None under a foreign loss without closure.
        predicted: Decrease that the quadratic model predicts, on the data that it looked at.
        actual: Decrease that was measured on the same data; None if it was not.
        ratio: ρ = actual / predicted, where no less than the minimum of the model is predicted;
            None where `actual` is.
        damping: λ of the step.
        length: What the direction was multiplied by, learning rate included.
        share: αL, the length in units of an equal share of the layers, without learning rate.
        gradient_norm: Norm of the gradient of the average loss.
        step_norm: Norm of the change of the parameters; 0 if it was undone.
        refreshed: Whether factors and inverses were renewed.
        rejected: Whether the step was undone because it raised the loss.
        notes: What could not be done, and why.
        seconds: Time in each part of the step.
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
        """Return the numbers that are known, flat, for TensorBoard or any other logger.

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

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Add the time spent inside to a part of the step."""
        start = clock()
        try:
            yield
        finally:
            self.seconds[part] = self.seconds.get(part, 0.0) + clock() - start
