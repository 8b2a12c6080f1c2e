"""Rules that end a descent or a flow; combine them with | and &."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

import torch
from torch import Tensor

from natgrad._checks import function, instance, integer, number
from natgrad._named import named, options
from natgrad.parametrizations.base import Params, flatten

__all__ = [
    "Progress",
    "Rule",
    "Status",
    "direction_settled",
    "loss_below",
    "margin_above",
    "steps_reached",
    "time_reached",
    "wall_clock",
]


class Status(StrEnum):
    """Why a trajectory ended.

    - `CONVERGED`, `TIME_REACHED`: a stopping rule or the final time was reached.
    - `SLID`: the same for a network with kinks, and on the way the flow slid along some. There the
      solution is Filippov's: the gradient points at the kink from both sides.
    - `STALLED`: steps, evaluations or seconds ran out before.
    - `SINGULAR`: the direction does not exist at the last time; `Trajectory.detail` says why.
    - `DIVERGED`: a number overflowed.

    Example:
        >>> Status.STALLED.value, Status.STALLED.reached
        ('stalled', False)
    """

    CONVERGED = "converged"
    TIME_REACHED = "time reached"
    SLID = "slid along kinks"
    STALLED = "stalled"
    SINGULAR = "singular"
    DIVERGED = "diverged"

    @property
    def reached(self) -> bool:
        """Return whether the run ended as asked, by its stopping rule or final time."""
        return self in (Status.CONVERGED, Status.TIME_REACHED, Status.SLID)


@dataclass
class Progress:
    """The state of a run that stopping rules receive.

    Attributes:
        t: Time.
        steps: Steps taken.
        loss: Current loss.
        params: Current parameters.
        outputs: Outputs at the training inputs.
        labels: Their labels.
        started: Wall clock at the start.
        memory: Values that rules keep from call to call, by rule.

    Example:
        >>> one = torch.ones(1)
        >>> progress = Progress(2.0, 1, 0.1, one, one, one, started=0.0)
        >>> time_reached(1.0).met(progress)
        True
    """

    t: float
    steps: int
    loss: float
    params: Params
    outputs: Tensor
    labels: Tensor
    started: float
    memory: dict[int, Tensor] = field(default_factory=dict)


@options
@dataclass(frozen=True, eq=False)
class Rule:
    """A reason to stop.

    Attributes:
        met: Returns whether the run should stop now.
        reason: The rule in words.
        status: The status of a trajectory that the rule ends.
        until: A time at which the rule ends every run.

    Example:
        >>> small = Rule(lambda progress: bool(progress.params.norm() < 1e-3), "small parameters")
        >>> (small | time_reached(10.0)).reason
        'small parameters or time 10 reached'
    """

    met: Callable[[Progress], bool]
    reason: str
    status: Status = Status.CONVERGED
    until: float = float("inf")

    def __post_init__(self) -> None:
        """Refuse arguments that would fail only long after the rule is made."""
        function(self.met, "what says whether to stop")
        instance(self.reason, "the reason to stop", str)
        instance(self.status, "the status of a rule", Status)
        number(self.until, "the last time of a rule", low=0, low_open=True, infinite=True)

    def __or__(self, other: "Rule") -> "Rule":
        """Return a rule that stops as soon as either does."""
        instance(other, "what is joined to a stopping rule", Rule)
        return self._joined(other, any, "or", min(self.until, other.until))

    def __and__(self, other: "Rule") -> "Rule":
        """Return a rule that stops when both do."""
        instance(other, "what is joined to a stopping rule", Rule)
        return self._joined(other, all, "and", max(self.until, other.until))

    def _joined(
        self, other: "Rule", join: Callable[[list[bool]], bool], word: str, until: float
    ) -> "Rule":
        status = self.status if self.status == other.status else Status.CONVERGED
        return Rule(
            # Both are called at every step, because rules with a memory must see every step.
            lambda progress: join([self.met(progress), other.met(progress)]),
            f"{self.reason} {word} {other.reason}",
            status,
            until,
        )


@named
def loss_below(bound: float) -> Rule:
    """Stop when the loss is at most `bound`.

    Example:
        >>> (loss_below(1e-6) | time_reached(1e9)).reason
        'loss at most 1e-06 or time 1e+09 reached'
    """
    bound = number(bound, "the bound of loss_below")
    return Rule(lambda p: p.loss <= bound, f"loss at most {bound:g}")


@named
def margin_above(bound: float) -> Rule:
    """Stop when every training margin y·s exceeds `bound` (labels ±1).

    Example:
        >>> margin_above(2.0).reason
        'margins above 2'
    """
    bound = number(bound, "the bound of margin_above")

    def met(p: Progress) -> bool:
        return bool((p.outputs.flatten() * p.labels.flatten()).min() > bound)

    return Rule(met, f"margins above {bound:g}")


@named
def time_reached(t: float) -> Rule:
    """Stop at time t.

    Example:
        >>> time_reached(1e6).status
        <Status.TIME_REACHED: 'time reached'>
    """
    t = number(t, "the final time", low=0, low_open=True)
    return Rule(lambda p: p.t >= t, f"time {t:g} reached", Status.TIME_REACHED, t)


@named
def steps_reached(n: int) -> Rule:
    """Stop after n steps.

    Example:
        >>> steps_reached(100).reason
        '100 steps'
    """
    n = integer(n, "the number of steps", low=0)
    return Rule(lambda p: p.steps >= n, f"{n} steps", Status.TIME_REACHED)


@named
def direction_settled(tolerance: float) -> Rule:
    """Stop when the normalized parameters change by at most `tolerance` per unit of log time.

    On separable data the parameters go to infinity, and only their direction converges.

    Example:
        >>> direction_settled(1e-3).reason
        'direction settled to 0.001'
    """
    tolerance = number(tolerance, "the tolerance of direction_settled", low=0)
    key = id(object())

    def met(p: Progress) -> bool:
        flat = flatten(p.params)
        unit = flat / torch.linalg.vector_norm(flat).clamp(min=torch.finfo(flat.dtype).tiny)
        now = torch.cat([unit, unit.new_tensor([max(p.t, 1e-300)])])
        before = p.memory.get(key)
        p.memory[key] = now
        if before is None or p.t <= 0:
            return False
        elapsed = torch.log(now[-1] / before[-1])
        change = torch.linalg.vector_norm(now[:-1] - before[:-1])
        return bool(elapsed > 0) and float(change / elapsed) <= tolerance

    return Rule(met, f"direction settled to {tolerance:g}")


@named
def wall_clock(seconds: float) -> Rule:
    """Stop after this many seconds of wall-clock time.

    Example:
        >>> wall_clock(60.0).reason
        '60 s of wall clock'
    """
    seconds = number(seconds, "the seconds of wall_clock", low=0)
    return Rule(
        lambda p: time.perf_counter() - p.started >= seconds,
        f"{seconds:g} s of wall clock",
        Status.STALLED,
    )


def as_rule(until: "float | Rule") -> Rule:
    """Return a rule; a number means a time."""
    return until if isinstance(until, Rule) else time_reached(until)
