"""How much damping, [BLH18] (21), and how the two factors of a layer share it."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from natgrad._checks import function, integer, number
from natgrad._named import options
from natgrad.errors import InvalidInputError
from natgrad.optim._arguments import keep, literal
from natgrad.optim._states import entries, real

__all__ = ["Adaptive", "Damping", "Falling", "Fixed", "Scheduled", "Split"]

Split = Literal["pi", "equal"]
"""`equal`: √λ on both factors, as in (20). `pi`: √λ π and √λ/π, where π² is the ratio of the
factors' mean eigenvalues (Martens and Grosse 2015), so both are damped by the same fraction."""


@options
@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """Levenberg–Marquardt: more damping if the quadratic model fails, [BLH18] (21).

    ρ is the ratio of the actual to the predicted decrease of the loss. λ grows if ρ < `low` or if
    the step is too short, α < `least_alpha` and αL < `least_share`. It shrinks if ρ > `high`.

    The second condition detects wrong factors; the first detects a loss that is not quadratic. Any
    Fisher is at most L times its block diagonal, so a step of length 1/L along the direction of
    exact blocks never overshoots: αL ≥ 1 is a theorem, and αL < 1 proves that the Kronecker factors
    miss curvature along the direction. ρ does not show this: the step has been shortened until the
    model holds, so ρ ≈ 1 reduces the damping. Without the condition λ falls to its floor, and α
    falls with it. Part of the missing curvature is expected: the direction is fitted to this batch,
    so the loss of this batch curves more along it than that of other samples. docs/notebook.md
    explains the value 1/16.

    Attributes:
        start: λ before the first step.
        up: Factor by which λ grows.
        down: Factor by which λ shrinks.
        low: ρ below which it grows; −∞ for never.
        high: ρ above which it shrinks; ∞ for never.
        least_alpha: α below which it grows, if αL is small too; ∞ for αL alone.
        least_share: αL below which it grows, if α is small too; 0 for eq. 21 alone, ∞ for α alone.
        floor: Smallest λ. Without a floor, λ keeps shrinking once a network has reached its noise
            level or has fitted all labels, until a step diverges.
        relative_floor: Smallest λ in units of the Fisher's scale, the geometric mean over layers of
            a block's mean eigenvalue. Below it, directions fit the noise of batches and factors.
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
    _relative: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise if an option is out of range."""
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
        """Return λ for the next steps; it is unchanged if ρ is not known.

        Args:
            step: Number of steps taken.
            value: The present λ.
            ratio: ρ.
            alpha: α.
            share: αL.
            scale: Scale of the Fisher.
        """
        return self._after(*_checked(step, value, ratio, alpha, share, scale))

    def _after(
        self,
        step: int,
        value: float,
        ratio: float | None,
        alpha: float,
        share: float,
        scale: float,
    ) -> float:
        if ratio is None:
            return value
        short = alpha < self.least_alpha and share < self.least_share
        if not ratio >= self.low or short:
            value *= self.up
        elif ratio > self.high:
            value *= self.down
        return min(max(value, self.floor, self.relative_floor * scale), self.ceiling)


@options
@dataclass(frozen=True, kw_only=True)
class Falling:
    """Damping relative to each block; it falls fast, and rises where squared errors show noise.

    √δ times the mean eigenvalue of a factor is added to the factor. At first the factors are poor
    estimates, and directions are close to the gradient. Later only the smallest eigenvalues, which
    consist of rounding and noise, are damped. δ has no unit, and it needs no measurement.

    The natural step of a block is predicted to decrease the loss by half of its slope, gᵀd/2.
    Squared errors are quadratic in the outputs and never negative, so a prediction of more than
    the loss is noise, found where eigenvalues are small: δ of that block then rises, up to 0.3,
    while lengths are learned. Other losses bend, and predictions beyond them are common, so their
    δ only falls, as does that of a block which takes its whole natural step.

    Attributes:
        start: δ at the first step.
        factor: Factor on δ at each step; its divisor where δ rises.
        floor: The smallest δ.
        reject: Undo a step that raises the loss by more than this fraction; infinity keeps all.

    Example:
        >>> [round(Falling().after(1, 0.1, ratio=ratio), 3) for ratio in (None, 0.2)]
        [0.07, 0.143]
    """

    start: float = 1.0
    factor: float = 0.7
    floor: float = 5e-4
    reject: float = 1.0
    split: ClassVar[Split] = "pi"
    _relative: ClassVar[bool] = True
    _high: ClassVar[float] = 0.3  # how far it rises; with more, short fits lose their first steps

    def __post_init__(self) -> None:
        """Raise if an option is out of range."""
        start, floor = (
            number(getattr(self, name), name, low=0, low_open=True) for name in ("start", "floor")
        )
        factor = number(self.factor, "factor", low=0, low_open=True, high=1)
        if floor > start:
            raise InvalidInputError(
                f"damping needs floor ≤ start, but got {floor:g} and {start:g}."
            )
        keep(self, start=start, floor=floor, factor=factor, reject=_reject(self.reject))

    def after(
        self,
        step: int,
        value: float,
        *,
        ratio: float | None = None,
        alpha: float = 1.0,
        share: float = 1.0,
        scale: float = 0.0,
    ) -> float:
        """Return δ for the next step, as `Adaptive.after`; ρ is the largest that is possible."""
        return self._after(*_checked(step, value, ratio, alpha, share, scale))

    def _after(self, _: int, value: float, ratio: float | None, *seen: float | None) -> float:
        high = max(self.floor, min(self.start, self._high))
        if ratio is None or ratio >= 1 or value > high:
            return max(self.floor, value * self.factor)
        return min(high, value / self.factor)


@options
@dataclass(frozen=True, kw_only=True)
class Fixed:
    """The same λ at every step.

    Attributes:
        start: λ ≥ 0; 0 uses pseudo-inverses of the factors, as in [BLH18] (10).
        split: How the factors share λ.
        reject: As in `Adaptive`; by default no step is undone.

    Example:
        >>> Fixed(start=0.1).after(3, 0.1, ratio=0.0, alpha=0.5, share=1.0)
        0.1
    """

    start: float
    split: Split = "pi"
    reject: float = math.inf
    _relative: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuse a negative damping."""
        keep(self, start=number(self.start, "damping", low=0), reject=_reject(self.reject))
        literal(self.split, "split", Split)

    def after(
        self,
        step: int,
        value: float,
        *,
        ratio: float | None = None,
        alpha: float = 1.0,
        share: float = 1.0,
        scale: float = 0.0,
    ) -> float:
        """Return λ; the arguments are those of `Adaptive.after`."""
        return self._after(*_checked(step, value, ratio, alpha, share, scale))

    def _after(self, step: int, value: float, *seen: float | None) -> float:
        return value


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
    _relative: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Raise if the function does not return a damping."""
        literal(self.split, "split", Split)
        keep(self, reject=_reject(self.reject))
        function(self.schedule, "schedule")
        self._at(0)

    @property
    def start(self) -> float:
        """Return λ before the first step."""
        return self._at(0)

    def after(
        self,
        step: int,
        value: float,
        *,
        ratio: float | None = None,
        alpha: float = 1.0,
        share: float = 1.0,
        scale: float = 0.0,
    ) -> float:
        """Return λ for the next step; the arguments are those of `Adaptive.after`."""
        return self._after(*_checked(step, value, ratio, alpha, share, scale))

    def _after(self, step: int, *seen: float | None) -> float:
        return self._at(step)

    def _at(self, step: int) -> float:
        return number(self.schedule(step), f"the damping schedule at step {step}", low=0)


Damping = Adaptive | Falling | Fixed | Scheduled


def _reject(value: Any) -> float:
    return number(value, "reject", low=0, infinite=True)


def _checked(
    step: Any, value: Any, ratio: Any, alpha: Any, share: Any, scale: Any
) -> tuple[int, float, float | None, float, float, float]:
    """Return the arguments of `after`; raise if one has an impossible value."""
    step, value = integer(step, "step", low=0), number(value, "value", low=0)
    alpha, share, scale = (
        number(x, name, infinite=True)
        for name, x in (("alpha", alpha), ("share", share), ("scale", scale))
    )
    if ratio is not None and not isinstance(ratio, float):  # NaN is allowed and counts as a failure
        ratio = number(ratio, "ratio", infinite=True)
    return step, value, ratio, alpha, share, scale


# If the share falls below this fraction of its value at the last refresh, the inverses no longer
# fit the batch and are updated ahead of schedule.
_STALE = 0.2

# At a verified step, the damping rule is applied up to this many times, to account for unverified
# steps before it. The second number is for undone steps, so that few steps in a row
# are lost.
_REPEATS, _UNDONE = 2, 4


class Adaptation:
    """Applies a damping rule from step to step.

    The rule uses the *average* share αL since the last refresh. Old inverses underestimate the
    curvature more than new ones, and more damping reduces this effect. A new λ applies to lengths
    at once, and to inverses at their next refresh.

    Args:
        rule: The rule.

    Attributes:
        value: λ.
        raised: δ of the blocks whose predictions were too large, where it is above λ.
    """

    def __init__(self, rule: Damping) -> None:
        self.rule = rule
        self.value: float = rule.start
        self.raised: dict[str, float] = {}
        self._fresh = 0.0  # share at the last refresh
        self._sum = 0.0  # of shares since

    def adapt(
        self,
        step: int,
        ratio: float | None,
        share: float,
        *,
        refreshed: bool,
        rejected: bool,
        since: int,
        depth: int,
        scale: float,
        possible: Mapping[str, float],
    ) -> bool:
        """Set λ for the next step, and return whether the inverses are out of date.

        Args:
            step: Number of the step.
            ratio: ρ, if it is known.
            share: αL of the step.
            refreshed: Whether the step updated the inverses.
            rejected: Whether the step was undone.
            since: Steps since the last refresh, this one included.
            depth: L.
            scale: Scale of the Fisher.
            possible: The largest ρ that each block which moved can have.
        """
        self._sum += share
        steps = max(1, since)
        mean = self._sum / steps
        repeats = _UNDONE if rejected else min(_REPEATS, steps) if refreshed else 1
        seen = (mean / depth, mean, scale)
        if self.rule._relative:  # it sees every step, and no ρ of whole ones
            self._raise(step, possible, *seen)
            repeats, ratio = 1, None
        for _ in range(repeats):
            self.value = self.rule._after(step, self.value, ratio, *seen)
        if refreshed:
            self._fresh, self._sum = share, 0.0
        return rejected or share < _STALE * self._fresh

    def _raise(self, step: int, possible: Mapping[str, float], *seen: float) -> None:
        """Set δ of every block that moved and predicts too much, or did before."""
        least = self.rule._after(step, self.value, None, *seen)
        for name, ratio in possible.items():
            before = self.raised.pop(name, self.value)
            value = self.rule._after(step, before, ratio, *seen)
            if value > least:
                self.raised[name] = value

    def follow(self, blocks: Collection[str]) -> None:
        """Forget blocks that are not among these."""
        self.raised = {name: value for name, value in self.raised.items() if name in blocks}

    def state_dict(self) -> dict[str, Any]:
        """Return the numbers."""
        numbers = {"damping": self.value, "fresh_share": self._fresh, "share_sum": self._sum}
        return {**numbers, "raised": dict(self.raised)}

    @staticmethod
    def check_state(state: Mapping[str, Any], where: str, blocks: Collection[str]) -> None:
        """Raise unless the numbers in a state can be loaded, for an optimizer with these blocks."""
        real(state["damping"], f"{where}.damping", low=0)
        saved = state["raised"]
        known = [name for name in blocks if isinstance(saved, Mapping) and name in saved]
        for name, value in entries(saved, f"{where}.raised", known).items():
            real(value, f"{where}.raised.{name}", low=0, low_open=True)
        for name in ("fresh_share", "share_sum"):
            real(state[name], f"{where}.{name}")

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a checked state."""
        self.value = state["damping"]
        self._fresh, self._sum = state["fresh_share"], state["share_sum"]
        self.raised = dict(state["raised"]) if self.rule._relative else {}
