"""The length of a step along the natural direction, and its predicted decrease."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from natgrad._checks import integer, number
from natgrad._named import options
from natgrad._warn import warn_user
from natgrad.errors import InvalidInputError
from natgrad.optim._arguments import keep
from natgrad.optim._capture.batch import Batch, Piece
from natgrad.optim._steps.direction import Direction
from natgrad.optim._steps.shares import solve

if TYPE_CHECKING:
    from natgrad.optim._steps.ruler import Ruler

__all__ = ["AdaptationWarning", "EqualShare", "Learned", "PerLayer", "Quadratic", "StepLength"]

Closure = Callable[[], Any]

UNMEASURED = (
    "the model does not reproduce its outputs, or they do not go straight to the criterion: equal "
    "shares instead of the quadratic model. Call the criterion on what the model returned, and "
    "compute everything else inside the model"
)
UNVERIFIED = (
    "the loss after the step cannot be measured, so the damping does not adapt: give NGD the "
    "criterion itself (natgrad.optim.Loss wraps a function), or pass a closure to step()"
)
"""Notes for steps whose length, or whose damping, cannot adapt."""


class AdaptationWarning(UserWarning):
    """The length of steps or the damping cannot adapt to this model and loss."""


def warn_fixed(notes: Sequence[str]) -> bool:
    """Warn if a step's notes say that its length or damping cannot adapt; return whether."""
    fixed = [note for note in notes if note in (UNMEASURED, UNVERIFIED)]
    if fixed:
        warn_user(f"{'; '.join(fixed)}.", AdaptationWarning)
    return bool(fixed)


@dataclass(frozen=True)
class QuadraticModel:
    """The expected loss along a direction: a decrease of t·slope − t²·bend/2.

    Attributes:
        alpha: The step length that minimizes the model.
        slope: First derivative.
        bend: Second derivative, damping included.
        pieces: The samples on which it was measured; None for the whole batch.
        share: The first-order decrease of the step, divided by that of equal shares.
        sizes: Σ fᵀFf over the outputs of each piece, if they were measured.
    """

    alpha: float
    slope: float
    bend: float
    pieces: Sequence[Piece] | None = None
    share: float = 0.0
    sizes: Sequence[float] = ()

    @classmethod
    def of_equal_shares(cls, direction: Direction) -> "QuadraticModel":
        """Return the model whose minimum is an equal share for every block ([BLH18] footnote 1)."""
        # Corrected: the sign is that of a decrease, and the step length is counted once.
        share = 1 / direction.depth
        return cls(share, direction.batch_slope, direction.slope / share, share=1.0)

    def decrease(self, length: float) -> float:
        """Return the predicted decrease of the loss."""
        return length * self.slope - length * length * self.bend / 2  # ** would raise, not overflow

    def shorten(self, length: float, most: float) -> float:
        """Return a length up to this one whose predicted decrease is between 0 and `most`.

        Example:
            >>> model = QuadraticModel(alpha=1.0, slope=8.0, bend=8.0)
            >>> model.shorten(1.0, most=3.0), model.shorten(5.0, most=9.0)
            (0.5, 1.0)
        """
        if self.decrease(length) < 0:
            length = max(0.0, self.slope / self.bend)
        if self.decrease(length) <= most:
            return length
        root = math.sqrt(max(0.0, self.slope**2 - 2 * self.bend * most))
        return 2 * most / (self.slope + root)


@options
@dataclass(frozen=True)
class EqualShare:
    """Step length lr/L: each of L layers takes an equal share, [BLH18] (20).

    Example:
        >>> EqualShare()
        EqualShare()
    """

    _measures: ClassVar[bool] = False  # whether the model is run to find the length

    def _rows_of(self, n: int) -> int:
        return n

    def _model(
        self, ruler: "Ruler", batch: Batch, direction: Direction, damping: float
    ) -> QuadraticModel:
        return QuadraticModel.of_equal_shares(direction)


@options
@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """Step length lr·α with α = gᵀd / dᵀ(F + λ)d, the minimum of the quadratic model along d.

    F is the Fisher itself, not its Kronecker approximation, so α accounts for interactions between
    layers: it is 1/L if all layers have the same effect, and up to 1 if they do not interact. It
    costs one forward pass on the samples behind `rows` rows of the outputs: dᵀFd = ‖J d‖² in the
    metric of the likelihood, where J d is the difference quotient of the outputs.

    Attributes:
        rows: Number of rows of the outputs; all rows are used if samples interact (batch
            normalization).

    Example:
        >>> Quadratic().rows
        125
    """

    rows: int = 125
    _measures: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Raise if there are no rows."""
        keep(self, rows=integer(self.rows, "rows", low=1))

    def _rows_of(self, n: int) -> int:
        return self.rows

    def _model(
        self, ruler: "Ruler", batch: Batch, direction: Direction, damping: float
    ) -> QuadraticModel:
        if not direction.slope > 0:
            return QuadraticModel.of_equal_shares(direction)
        rows = ruler.reproduction.rows_of(batch)
        partial = bool(rows and rows < batch.n)
        return self._measured(ruler, batch.first(rows), partial, batch, direction, damping)

    def _measured(
        self,
        ruler: "Ruler",
        pieces: list[Piece],
        partial: bool,
        batch: Batch,
        direction: Direction,
        damping: float,
    ) -> QuadraticModel:
        sizes = ruler.sizes(pieces)
        epsilon = ruler.epsilon(direction, pieces, batch.average(sizes, pieces))
        found = ruler.along(batch, pieces, sizes, direction, damping, epsilon)
        exact = not pieces[0].call.rounded
        missed = (direction.batch_slope - found.slope) / direction.slope
        if exact and partial and not -1 < missed < 0.5:
            # The slope comes from samples outside of these rows, which also add curvature.
            found = ruler.along(batch, batch.first(None), (), direction, damping, epsilon)
        return found if found.bend > 0 else QuadraticModel.of_equal_shares(direction)


@options
@dataclass(frozen=True, kw_only=True)
class PerLayer(Quadratic):
    """One length per layer; together they minimize the quadratic model.

    The shares cᵢ solve Σⱼ dᵢᵀ(F + λ)dⱼ cⱼ = gᵀdᵢ, which takes one forward pass per layer instead of
    one for all. In deep linear networks with a bottleneck, equal shares converge at a fraction of
    the rate of the natural gradient ([BLH18] (19)). Shares that may differ, and be negative,
    recover that rate. If all layers have the same effect, the shares are equal.

    Attributes:
        rows: As in `Quadratic`.

    Example:
        >>> PerLayer(rows=100).rows
        100
    """

    def _measured(
        self,
        ruler: "Ruler",
        pieces: list[Piece],
        partial: bool,
        batch: Batch,
        direction: Direction,
        damping: float,
    ) -> QuadraticModel:
        sizes = ruler.sizes(pieces)
        size = batch.average(sizes, pieces)
        velocities = [
            ruler.velocities(part, pieces, ruler.epsilon(part, pieces, size))
            for part in direction.parts
        ]
        shares, bend = solve(batch, pieces, velocities, direction, damping)
        before = direction.slope
        direction.rescale(shares)
        share = direction.slope / before * direction.depth
        return QuadraticModel(1.0, direction.batch_slope, bend, pieces, share, sizes)


@options
@dataclass(frozen=True, kw_only=True)
class Learned:
    """One length per layer, learned from the slope that is left after each step.

    Directions have a fixed norm, √min(m, n) · √max(1, m/n) for a layer's m × n matrix, so a step
    changes outputs by about the same fraction whatever the layer's size. No layer steps farther
    than its natural step d itself. The length η grows or shrinks by up to 10 % per step:
    log η += `rate` · h, |h| ≤ 1, where h is the slope of the next gradient along the last
    direction, divided by the slope at the start of the step. While most of the slope is left in
    every layer, step after step, η grows by up to 65 % (`fast`). It does not fall below a fifth of
    the mean of its values so far. This costs one inner product, and no pass through the model.

    If the loss of the next batch is far above that of the last ones (`reject` of the damping), the
    last step is undone, that batch is skipped, and all lengths are halved.

    Attributes:
        start: η at the first step; less in layers whose weights are smaller than half of torch's
            usual ones, so that 0.03 changes weights by at most a tenth of their norm.
        rate: Largest change of log η per step.
        fast: Largest growth of log η per step while all of the slope is left.
        floor: Smallest η.
        ceiling: Largest η.

    Example:
        >>> Learned().start
        0.03
    """

    start: float = 0.03
    rate: float = 0.1
    fast: float = 0.5
    floor: float = 1e-10
    ceiling: float = 1.0

    def __post_init__(self) -> None:
        """Raise if an option is out of range."""
        names = ("start", "rate", "fast", "floor", "ceiling")
        found = {name: number(getattr(self, name), name, low=0, low_open=True) for name in names}
        keep(self, **found)
        if self.fast < self.rate:
            raise InvalidInputError(
                f"step_length needs rate ≤ fast, but got {self.rate:g} and {self.fast:g}."
            )
        if not self.floor <= self.start <= self.ceiling:
            raise InvalidInputError(
                "step_length needs floor ≤ start ≤ ceiling, but got "
                f"{self.floor:g}, {self.start:g}, {self.ceiling:g}."
            )


Measured = EqualShare | PerLayer | Quadratic
StepLength = EqualShare | Learned | PerLayer | Quadratic
