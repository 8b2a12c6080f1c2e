"""What a step of `GaussNewton` did, for the user to read."""

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["GaussNewtonStatistics", "Status"]

Status = Literal["none", "accepted", "rejected", "converged"]


@dataclass
class GaussNewtonStatistics:
    """One trial step of `GaussNewton`.

    Attributes:
        step: Number of the step, from 1.
        status: `"accepted"`, `"rejected"` (the weights are as before), or `"converged"` (no
            decrease above rounding is left; the weights are as before).
        reason: Why, in a sentence.
        loss: Loss before the step.
        losses: The same, block by block.
        new_loss: Loss at the weights that the step leaves.
        predicted: Decrease that the linear model predicts.
        actual: Decrease that was measured; None if the step was rejected earlier.
        ratio: ρ = actual / predicted.
        damping: λ of the step.
        acceleration: 2 |a| / |v|: how much the second-order correction bends the step.
        gradient_norm: Norm of the gradient.
        step_norm: Norm of the change of the parameters; 0 unless accepted.
        held_out: Loss on the held-out points before the step; None where it was not computed.
        side: `"parameters"`, `"residuals"` or `"conjugate_gradients"`: which system was solved.
        solve_error: Relative size of the last correction of the solution, or, for conjugate
            gradients, of the residual of the equation.
        notes: What took a slower route, and why.

    Example:
        >>> GaussNewtonStatistics(step=3, loss=0.5).scalars()["loss"]
        0.5
    """

    step: int = 0
    status: Status = "none"
    reason: str = ""
    loss: float | None = None
    losses: dict[str, float] = field(default_factory=dict)
    new_loss: float | None = None
    predicted: float = 0.0
    actual: float | None = None
    ratio: float | None = None
    damping: float = 0.0
    acceleration: float = 0.0
    gradient_norm: float = 0.0
    step_norm: float = 0.0
    held_out: float | None = None
    side: str = ""
    solve_error: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def rejected(self) -> bool:
        """Return whether the weights are as before."""
        return self.status != "accepted"

    def scalars(self) -> dict[str, float]:
        """Return the known numbers as a flat dictionary, for TensorBoard or any other logger.

        Example:
            >>> found = GaussNewtonStatistics(loss=0.5, losses={"interior": 0.5}).scalars()
            >>> found["loss/interior"]
            0.5
        """
        names = (
            "loss",
            "new_loss",
            "predicted",
            "actual",
            "ratio",
            "damping",
            "acceleration",
            "gradient_norm",
            "step_norm",
            "held_out",
            "solve_error",
            "rejected",
        )
        known = {name: getattr(self, name) for name in names}
        found = {name: float(value) for name, value in known.items() if value is not None}
        return found | {f"loss/{block}": value for block, value in self.losses.items()}
