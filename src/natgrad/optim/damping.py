"""How much damping, [BLH18] (21), and how the two factors of a layer share it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from natgrad._checks import function, integer, number
from natgrad.errors import InvalidInputError
from natgrad.optim._arguments import keep, literal, options

Split = Literal["pi", "equal"]
"""`equal`: √λ on both factors, as (20). `pi`: √λ π and √λ/π, π² the ratio of the factors' mean
eigenvalues (Martens and Grosse 2015), so that both are damped by the same fraction."""


def ridges(split: Split, damping: float, inputs: float, errors: float) -> tuple[float, float]:
    """Return what is added to Λ and to Λ̃, of the given mean eigenvalues; the product is λ.

    Example:
        >>> ridges("pi", 0.01, inputs=4.0, errors=1.0)
        (0.2, 0.05)
    """
    root = math.sqrt(damping)
    if split == "equal" or inputs <= 0 or errors <= 0:
        return root, root
    pi = math.sqrt(inputs / errors)
    return root * pi, root / pi


@options
@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """Levenberg–Marquardt: more damping where the quadratic model fails, [BLH18] (21).

    With ρ the ratio of the actual to the predicted decrease of the loss, λ grows if ρ < `low` or if
    the step is too short, α < `least_alpha` and αL < `least_share`; it shrinks if ρ > `high`.

    The second condition guards against factors that are wrong rather than against a loss that is
    not quadratic. Any Fisher is at most L times its block diagonal, so a step of length 1/L along
    the direction of exact blocks never overshoots: αL ≥ 1 is a theorem, and αL < 1 proves that the
    Kronecker factors miss curvature along the direction. ρ cannot tell: the step has been shortened
    until the model holds, ρ ≈ 1 asks for less damping, and without the condition λ sinks to its
    floor and α with it. Some of what is missed is no fault: the direction is fitted to this batch,
    which therefore bends more along it than other data do. docs/optimizer.md says why 1/16.

    Attributes:
        start: λ before the first step.
        up: Factor by which λ grows.
        down: Factor by which λ shrinks.
        low: ρ below which it grows.
        high: ρ above which it shrinks.
        least_alpha: α below which it grows, if αL is small too.
        least_share: αL below which it grows, if α is small too; 0 for eq. 21 alone.
        floor: Smallest λ. Mandatory: without one a network that has reached its noise floor, or has
            fitted all labels, goes on shrinking λ until a step blows up.
        relative_floor: Smallest λ in units of the Fisher's scale, the geometric mean over layers of
            a block's mean eigenvalue. Below it directions fit the noise of batches and factors.
        ceiling: Largest λ.
        reject: Undo a step that raises the loss by more than this fraction; infinity keeps all.
        split: How the factors share λ.

    Example:
        >>> rule = Adaptive()
        >>> rule.after(1, 0.1, ratio=0.1, alpha=0.5, share=1.0)
        0.15000000000000002
        >>> rule.after(1, 0.1, ratio=0.5, alpha=0.5, share=1.0)
        0.1
    """

    start: float = 0.03
    up: float = 1.5
    down: float = 2 / 3
    low: float = 0.25
    high: float = 0.75
    least_alpha: float = 1 / 16
    least_share: float = 1.0
    floor: float = 1e-6
    relative_floor: float = 2e-3
    ceiling: float = 1e6
    reject: float = 0.05
    split: Split = "pi"

    def __post_init__(self) -> None:
        """Refuse options that make no sense."""
        positive = {"low": 0.0, "low_open": True}
        bounds: dict[str, dict[str, Any]] = {
            "start": positive,
            "floor": positive,
            "ceiling": positive,
            "up": {"low": 1.0},
            "down": positive | {"high": 1.0},
            "low": {"infinite": True},
            "high": {"infinite": True},
            "least_alpha": {"low": 0.0, "infinite": True},
            "least_share": {"low": 0.0, "infinite": True},
            "relative_floor": {"low": 0.0},
            "reject": {"low": 0.0, "infinite": True},
        }
        keep(self, **{name: number(getattr(self, name), name, **b) for name, b in bounds.items()})
        if not self.floor <= self.start <= self.ceiling:
            raise InvalidInputError(
                "damping needs floor ≤ start ≤ ceiling, but got "
                f"{self.floor:g}, {self.start:g}, {self.ceiling:g}."
            )
        if self.low > self.high:
            raise InvalidInputError(
                f"damping needs low ≤ high, but got low {self.low:g}, high {self.high:g}."
            )
        literal(self.split, "split", Split)

    def after(
        self,
        step: int,
        value: float,
        *,
        ratio: float | None,
        alpha: float,
        share: float,
        scale: float = 0.0,
    ) -> float:
        """Return λ for the next steps; unchanged where ρ is not known.

        Args:
            step: Steps taken.
            value: λ so far.
            ratio: ρ.
            alpha: α.
            share: αL.
            scale: The Fisher's.
        """
        value = _checked(step, value)
        if ratio is None:
            return value
        alpha, share, scale = (
            number(x, name, infinite=True)
            for name, x in (("alpha", alpha), ("share", share), ("scale", scale))
        )
        if not isinstance(ratio, float):  # NaN is allowed, and counts as a failure
            ratio = number(ratio, "ratio", infinite=True)
        short = alpha < self.least_alpha and share < self.least_share
        if not ratio >= self.low or short:
            value *= self.up
        elif ratio > self.high:
            value *= self.down
        return min(max(value, self.floor, self.relative_floor * scale), self.ceiling)


@options
@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The same λ at every step.

    Attributes:
        start: λ ≥ 0; 0 takes pseudo-inverses of the factors, as [BLH18] (10).
        split: How the factors share λ.
        reject: As in `Adaptive`; by default no step is undone.

    Example:
        >>> Fixed(start=0.1).after(3, 0.1, ratio=0.0, alpha=0.5, share=1.0)
        0.1
    """

    start: float
    split: Split = "pi"
    reject: float = math.inf

    def __post_init__(self) -> None:
        """Refuse a negative damping."""
        keep(self, start=number(self.start, "damping", low=0), reject=_reject(self.reject))
        literal(self.split, "split", Split)

    def after(self, step: int, value: float, **seen: float | None) -> float:
        """Return λ."""
        return _checked(step, value)


@options
@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """λ as a function of the number of steps taken.

    Attributes:
        schedule: The function.
        split: How the factors share λ.
        reject: As in `Adaptive`; by default no step is undone.

    Example:
        >>> rule = Scheduled(schedule=lambda k: 0.1 * 0.5**k)
        >>> rule.after(1, 0.1, ratio=None, alpha=0.5, share=1.0)
        0.05
    """

    schedule: Callable[[int], float]
    split: Split = "pi"
    reject: float = math.inf

    def __post_init__(self) -> None:
        """Refuse a function that does not give a damping."""
        literal(self.split, "split", Split)
        keep(self, reject=_reject(self.reject))
        function(self.schedule, "schedule")
        self._at(0)

    @property
    def start(self) -> float:
        """Return λ before the first step."""
        return self._at(0)

    def after(self, step: int, value: float, **seen: float | None) -> float:
        """Return λ for the next step, after `step` of them."""
        return self._at(integer(step, "step", low=0))

    def _at(self, step: int) -> float:
        return number(self.schedule(step), f"the damping schedule at step {step}", low=0)


Damping = Adaptive | Fixed | Scheduled


def _reject(value: Any) -> float:
    return number(value, "reject", low=0, infinite=True)


def _checked(step: Any, value: Any) -> float:
    """Return λ, if that and the number of steps can be what they are called."""
    integer(step, "step", low=0)
    return number(value, "value", low=0)
