"""How long a step along the natural direction is."""

import math
from dataclasses import dataclass

from natgrad._checks import integer
from natgrad.optim._arguments import keep, options
from natgrad.optim._capture.batch import Piece


@options
@dataclass(frozen=True)
class EqualShare:
    """Step length lr/L: each of L layers takes an equal share, [BLH18] (20).

    Example:
        >>> EqualShare()
        EqualShare()
    """


@options
@dataclass(frozen=True, kw_only=True)
class Quadratic:
    """Step length lr·α with α = gᵀd / dᵀ(F + λ)d, the minimum of the quadratic model along d.

    F is the Fisher itself, not its Kronecker approximation, so α knows how much of the step every
    layer should take: 1/L where all layers do the same work, up to 1 where they do not interfere.
    It costs one forward pass on the data behind `rows` rows of the outputs: dᵀFd = ‖J d‖² in the
    metric of the likelihood, with J d the difference quotient of the outputs.

    Attributes:
        rows: How many rows of the outputs; where data interact (batch normalisation), all of them.

    Example:
        >>> Quadratic().rows
        125
    """

    rows: int = 125

    def __post_init__(self) -> None:
        """Refuse an empty sample."""
        keep(self, rows=integer(self.rows, "rows", low=1))


@options
@dataclass(frozen=True, kw_only=True)
class PerLayer(Quadratic):
    """A length for every layer: the minimum of the quadratic model over all of them together.

    The shares cᵢ solve Σⱼ dᵢᵀ(F + λ)dⱼ cⱼ = gᵀdᵢ, which takes a forward pass for each layer instead
    of one for all. In deep linear networks with a bottleneck equal shares converge at a fraction of
    the rate of the natural gradient ([BLH18] (19)); shares that may differ, and be negative, win it
    back. Where all layers do the same work they are equal.

    Attributes:
        rows: As in `Quadratic`.

    Example:
        >>> PerLayer(rows=100).rows
        100
    """


StepLength = EqualShare | Quadratic | PerLayer


@dataclass(frozen=True)
class QuadraticModel:
    """What is expected of the loss along a direction: a decrease of t·slope − t²·bend/2.

    Attributes:
        alpha: The step length that the model asks for.
        slope: First derivative.
        bend: Second derivative, damping included.
        pieces: The data it is about; None for the whole batch.
        share: The step's decrease to first order, in units of that of equal shares.
    """

    alpha: float
    slope: float
    bend: float
    pieces: list[Piece] | None = None
    share: float = 0.0

    def decrease(self, length: float) -> float:
        """Return the decrease of the loss that a step promises."""
        return length * self.slope - length * length * self.bend / 2  # ** would raise, not overflow

    def shorten(self, length: float, most: float) -> float:
        """Return a length up to this one that promises a decrease, of no more than `most`.

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
