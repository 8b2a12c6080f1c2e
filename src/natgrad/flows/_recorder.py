"""Collecting a trajectory while it is computed."""

import bisect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic

import torch
from torch import Tensor

from natgrad._checks import dense, describe, function, numbers
from natgrad.errors import DtypeError, InvalidInputError
from natgrad.flows.trajectory import Trajectory
from natgrad.likelihoods import Likelihood
from natgrad.parametrizations.base import P, Parametrization, leaves, rebuild
from natgrad.stopping import Progress, Status

Record = Mapping[str, Callable[[Any], Any]]
"""Diagnostics by name: functions of the parameters that return a number or a tensor."""


@dataclass(frozen=True)
class Reached(Generic[P]):
    """The state of a run, and its cost so far.

    Attributes:
        params: The parameters.
        t: The time.
        steps: Steps taken so far.
        evaluations: Evaluations so far.
        method: The methods used so far.
        status: Why the run ended.
        detail: The same in a sentence.
        error_estimate: As in `Trajectory`.
        lost: Whether the solver failed, so that another one may take over.
    """

    params: P
    t: float = 0.0
    steps: int = 0
    evaluations: int = 0
    method: str = ""
    status: Status = Status.STALLED
    detail: str = ""
    error_estimate: float = math.nan
    lost: bool = False


class Recorder(Generic[P]):
    """Saved times, states, losses and diagnostics of one run."""

    def __init__(
        self,
        likelihood: Likelihood,
        parametrization: Parametrization[P],
        batch: tuple[Tensor, Tensor],
        times: Tensor | None,
        record: Record | None,
    ) -> None:
        self.likelihood, self.parametrization, self.batch = likelihood, parametrization, batch
        self.wanted = None if times is None else check_times(times).tolist()
        self._next = 0
        self._record = _check_record(record)
        self._times: list[float] = []
        self._states: list[P] = []
        self._losses: list[float] = []
        self._recorded: dict[str, list[Tensor]] = {name: [] for name in self._record}
        self.started = time.perf_counter()
        self.memory: dict[int, Tensor] = {}

    def save(self, t: float, params: P) -> None:
        """Append one state."""
        x, y = self.batch
        self._times.append(t)
        self._states.append(params)
        self._losses.append(float(self.likelihood(self.parametrization.predict(params, x), y)))
        for name, call in self._record.items():
            self._recorded[name].append(torch.as_tensor(call(params)).detach())

    def due(self, until: float) -> list[float]:
        """Return the wanted times up to `until` that were not yet saved."""
        if self.wanted is None:
            return []
        out = []
        while self._next < len(self.wanted) and self.wanted[self._next] <= until:
            out.append(self.wanted[self._next])
            self._next += 1
        return out

    def rewind(self) -> None:
        """Restart the list of requested times after the last one saved."""
        if self.wanted is not None:
            last = self._times[-1] if self._times else -math.inf
            self._next = bisect.bisect_right(self.wanted, last)

    @property
    def saves_every_step(self) -> bool:
        """Return whether no times were asked for."""
        return self.wanted is None

    def saved_at(self, t: float) -> bool:
        """Return whether the last saved time is t."""
        return bool(self._times) and self._times[-1] == t

    def progress(self, t: float, steps: int, params: Callable[[], P]) -> Progress:
        """Return the progress that stopping rules inspect."""
        return _Glance(self, t, steps, params)

    def outputs(self, params: P) -> Tensor:
        """Return the outputs at the whole batch."""
        return self.parametrization.predict(params, self.batch[0])

    def finish(self, end: Reached[P]) -> Trajectory[P]:
        """Return the trajectory that ends at this state, which is saved."""
        if not self.saved_at(end.t):
            self.save(end.t, end.params)
        columns = zip(*(leaves(state) for state in self._states), strict=True)
        states = rebuild([torch.stack(column) for column in columns], self._states[0])
        return Trajectory(
            times=torch.tensor(self._times, dtype=torch.float64),
            states=states,
            losses=torch.tensor(self._losses, dtype=torch.float64),
            recorded={name: torch.stack(values) for name, values in self._recorded.items()},
            status=end.status,
            detail=end.detail,
            method=end.method,
            evaluations=end.evaluations,
            steps=end.steps,
            error_estimate=end.error_estimate,
            seconds=time.perf_counter() - self.started,
        )


class _Glance(Progress):
    """Progress whose parameters, outputs and loss are computed when a rule first reads them."""

    def __init__(
        self, recorder: Recorder[Any], t: float, steps: int, params: Callable[[], Any]
    ) -> None:
        self.t, self.steps, self._params = t, steps, params
        self.labels = recorder.batch[1]
        self.started, self.memory = recorder.started, recorder.memory
        self._recorder = recorder

    def __getattr__(self, name: str) -> Any:
        # Asked for only while the attribute is missing.
        if name == "params":
            self.params = self._params()
            return self.params
        if name == "outputs":
            self.outputs = self._recorder.outputs(self.params)
            return self.outputs
        if name == "loss":
            self.loss = float(self._recorder.likelihood(self.outputs, self.labels))
            return self.loss
        raise AttributeError(name)


def check_times(times: Tensor, name: str = "times") -> Tensor:
    """Return times to save as float64; raise unless they are finite, not negative and increase."""
    if isinstance(times, type):
        raise DtypeError(f"{name} must be a sequence of numbers, but is {describe(times)}.")
    if isinstance(times, Tensor):
        if dense(times, name).is_complex() or times.dtype == torch.bool:
            raise DtypeError(f"{name} must be real numbers, but are {times.dtype}.")
        t = times.detach().double().cpu().flatten()
    else:
        t = torch.tensor(numbers(times, name), dtype=torch.float64)
    if len(t) == 0 or bool((t < 0).any()) or not bool(torch.isfinite(t).all()):
        raise InvalidInputError(f"{name} must be finite, not negative, and at least one.")
    if bool((t[1:] <= t[:-1]).any()):
        raise InvalidInputError(f"{name} must increase.")
    return t


def _check_record(record: Record | None) -> dict[str, Callable[[Any], Any]]:
    """Return diagnostics by name; raise unless they are functions."""
    if record is None:
        return {}
    if not isinstance(record, Mapping):
        raise DtypeError(f"record must map names to functions, but is {describe(record)}.")
    for name, call in record.items():
        if not isinstance(name, str):
            raise DtypeError(f"record's names must be strings, but one is {describe(name)}.")
        function(call, f"record[{name!r}]")
    return dict(record)
