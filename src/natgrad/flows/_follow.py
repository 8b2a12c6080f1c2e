"""The loop that runs every solver of a flow: step, save, check the stopping rule."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple

from natgrad.errors import (
    ConvergenceError,
    NatgradError,
    NonFiniteError,
    RankDeficientError,
    VelocityOverflowError,
)
from natgrad.flows._problem import Problem
from natgrad.flows._recorder import Reached, Recorder
from natgrad.parametrizations.base import P
from natgrad.stopping import Rule, Status

_SINGULAR = (RankDeficientError, ConvergenceError)
_DIVERGED = (VelocityOverflowError, NonFiniteError)


class Settings(NamedTuple):
    """How accurately a flow is integrated, and in which time; None is the solver's own choice."""

    rtol: float | None
    atol: float | None
    log_time: bool | None


class Ended(NamedTuple):
    """Why a path cannot go on."""

    status: Status
    detail: str


class Path(ABC, Generic[P]):
    """A flow being solved: its present state, and its next step.

    Attributes:
        method: The method, in words.
        t: Time reached.
    """

    method: str
    t: float

    @abstractmethod
    def begin(self) -> None:
        """Prepare the first step."""

    @abstractmethod
    def step(self) -> Ended | None:
        """Take one step; return None, or the reason why there is none."""

    @abstractmethod
    def at(self, t: float) -> P:
        """Return the parameters at a time within the last step; times must increase."""

    @property
    @abstractmethod
    def params(self) -> P:
        """Return the parameters now."""

    def capture(self) -> Callable[[], P]:
        """Return a function that returns the parameters of this moment, also after later steps.

        Paths for which parameters are cheap to keep and not free to build override it.
        """
        params = self.params
        return lambda: params

    @property
    @abstractmethod
    def evaluations(self) -> int:
        """Return the number of evaluations so far."""

    @property
    def spent(self) -> int:
        """Return the number that is compared with `max_evaluations`."""
        return self.evaluations

    @property
    @abstractmethod
    def error(self) -> float:
        """Return the error estimate so far."""

    @property
    def slid(self) -> bool:
        """Return whether the flow slid along kinks so far."""
        return False

    @property
    def note(self) -> str:
        """Return details of the path for the user, besides why it ended."""
        return ""

    @property
    def hint(self) -> str:
        """Return what a user can try if the path does not reach its end."""
        return ""

    def failed(self, error: NatgradError, t: float) -> Ended:
        """Return the status and message for an error at time t."""
        if isinstance(error, _SINGULAR):
            return Ended(Status.SINGULAR, f"a rank is lost near t = {t:.6g}: {error}")
        return Ended(Status.DIVERGED, f"near t = {t:.6g}: {error}")


class Solver(ABC):
    """A method for solving flows, with a test for the problems that it suits.

    Attributes:
        name: Its name in `integrate(method=...)`.
        purpose: The problems that it solves, in words.
        default_rtol: Accuracy if none is given.
        successor: The solver that continues with `method="auto"` if this one fails.
    """

    name: str
    purpose: str = "any flow"
    default_rtol: float = 1e-6
    successor: str | None = None

    def suits(self, problem: Problem[P]) -> bool:
        """Return whether it can solve the problem."""
        return True

    @abstractmethod
    def why(self, problem: Problem[P], rtol: float) -> str | None:
        """Return why `method="auto"` should choose it, in words; None if it should not."""

    @abstractmethod
    def start(
        self, problem: Problem[P], reached: Reached[P], end: float, settings: Settings
    ) -> Path[P]:
        """Return the path that starts where another one ended; the first starts at time 0."""


def follow(
    path: Path[P], start: Reached[P], rule: Rule, recorder: Recorder[P], max_evaluations: int
) -> Reached[P]:
    """Step until the rule is met or the flow cannot continue; return the state reached."""
    t, steps = start.t, start.steps
    here: Callable[[], P] = lambda: start.params  # noqa: E731
    lost = False
    ended = Ended(Status.STALLED, f"gave up after {max_evaluations} evaluations")
    if t == 0 and not recorder.saved_at(0.0) and (recorder.saves_every_step or recorder.due(0.0)):
        recorder.save(0.0, here())
    try:
        path.begin()
        while path.spent < max_evaluations:
            stuck = path.step()
            if stuck is not None:
                ended = stuck
                break
            for due in recorder.due(path.t):
                recorder.save(due, path.at(due))
            here, t, steps = path.capture(), path.t, steps + 1
            if recorder.saves_every_step:
                recorder.save(t, here())
            if rule.met(recorder.progress(t, steps, here)):
                status = Status.SLID if path.slid and rule.status.reached else rule.status
                ended = Ended(status, f"{rule.reason} at t = {t:.6g}")
                break
    except (*_SINGULAR, *_DIVERGED) as error:
        ended, lost = path.failed(error, t), True
    parts = (ended.detail, path.note, "" if ended.status.reached else path.hint)
    return Reached(
        here(),
        t,
        steps,
        path.evaluations,
        path.method,
        ended.status,
        "; ".join(part for part in parts if part),
        path.error,
        lost,
    )
