"""The near side of a child process, which runs one job at a time and can be killed."""

import os
import pickle
import signal
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from natgrad.lab.engines._base import Outcome
from natgrad.lab.engines._spawner import Spawner
from natgrad.lab.engines._worker import RUNNING, TAKEN
from natgrad.lab.failures import StoreError, WorkerError

_SLICE = 0.25  # seconds between looks at whether the job is still wanted
_STARTS = 3  # processes that may end before their job has begun


class Cancelled(Exception):
    """A job was killed because nobody wants it any more."""


class Children:
    """Child processes to run jobs in, each a thread's for the time of a job, then another's."""

    def __init__(self) -> None:
        self._spawner = Spawner()
        self._idle: deque[Child] = deque()
        self._all: list[Child] = []

    def run(
        self,
        parcel: bytes,
        timeout: float | None = None,
        unwanted: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Return what became of a job, run in a child of its own; see `Child.run`."""
        try:
            child = self._idle.pop()
        except IndexError:
            child = Child(self._spawner)
            self._all.append(child)
        try:
            return child.run(parcel, timeout, unwanted)
        finally:
            self._idle.append(child)

    def pids(self) -> list[int]:
        """Return the processes that live."""
        return [child.pid for child in list(self._all) if child.pid is not None]

    def hurry(self) -> None:
        """Start no more processes until closed."""
        self._spawner.hurry()

    def close(self, patience: float = 0.0) -> None:
        """Kill every child that is not in use; wait a while for those that are."""
        deadline = time.monotonic() + patience
        while len(self._idle) < len(self._all) and time.monotonic() < deadline:
            time.sleep(0.02)
        for child in list(self._idle):
            child.kill()
        self._spawner.close()


class Child:
    """A process of one thread, started when there is a job, and again when it was lost."""

    def __init__(self, spawner: Spawner) -> None:
        self._spawner = spawner
        self._connection: Connection | None = None
        self.pid: int | None = None

    def run(
        self,
        parcel: bytes,
        timeout: float | None = None,
        unwanted: Callable[[], bool] = lambda: False,
    ) -> Outcome:
        """Return what became of a job.

        Args:
            parcel: The packed job.
            timeout: Seconds of running after which the process is killed.
            unwanted: Asked four times a second; the process is killed when it says yes.

        Raises:
            StoreError: If the store is in sight and cannot be written.
            WorkerError: If process after process ends before the job has begun, or has other
                sources than the sweep was begun with.
            Cancelled: If `unwanted` said yes.
        """
        for _ in range(_STARTS):
            conversation = self._talk(timeout, unwanted)
            try:
                return conversation.hold(parcel)
            except _Gone:
                code = self.kill()
                if conversation.taken:
                    return Outcome("killed", message=_obituary(code))
            except _TimeUp:
                self.kill()
                return Outcome("timeout", timeout or 0.0, message=f"killed after {timeout:g} s.")
            except (StoreError, WorkerError):
                raise  # the process is well
            except BaseException:
                self.kill()
                raise
        raise WorkerError(
            f"{_STARTS} worker processes in a row ended before they began: {_obituary(code)} "
            "What they printed says why; `natgrad verify` tells whether natgrad itself works."
        )

    def _talk(self, timeout: float | None, unwanted: Callable[[], bool]) -> "_Conversation":
        if self.pid is None or self._connection is None:
            self.pid, self._connection = self._spawner.spawn()
        pid = self.pid
        return _Conversation(self._connection, lambda: self._spawner.ended(pid), timeout, unwanted)

    def kill(self) -> int | None:
        """Kill the process and what it started; return its exit code if there is one."""
        pid, connection = self.pid, self._connection
        self.pid = self._connection = None
        if pid is None or connection is None:
            return None
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        connection.close()
        return self._spawner.reap(pid)


class _Gone(Exception):
    """The process ended in the middle of a job."""


class _TimeUp(Exception):
    """The cell ran longer than it may."""


class _Conversation:
    """One job sent to a process, and the answers."""

    def __init__(
        self,
        connection: Connection,
        ended: Callable[[], bool],
        timeout: float | None,
        unwanted: Callable[[], bool],
    ) -> None:
        self._connection, self._ended = connection, ended
        self._timeout, self._unwanted = timeout, unwanted
        self._deadline = float("inf")
        self.taken = False

    def hold(self, parcel: bytes) -> Outcome:
        try:
            self._connection.send_bytes(parcel)
            while (message := self._answer()) in (TAKEN, RUNNING):
                self.taken = True
                if message == RUNNING and self._timeout is not None:
                    self._deadline = time.monotonic() + self._timeout
        except (EOFError, OSError) as error:
            raise _Gone from error
        outcome = pickle.loads(message)
        if isinstance(outcome, StoreError | WorkerError):
            raise outcome
        assert isinstance(outcome, Outcome)
        return outcome

    def _answer(self) -> bytes:
        while True:
            left = self._deadline - time.monotonic()
            if self._connection.poll(max(0.0, min(_SLICE, left))):
                return self._connection.recv_bytes()
            if left <= 0:
                raise _TimeUp
            if self._unwanted():
                raise Cancelled
            if self._ended() and not self._connection.poll(0):
                raise EOFError  # though a process of the cell's own keeps the connection open


def _obituary(code: int | None) -> str:
    if code is None:
        return "its process ended."
    if code >= 0:
        return f"its process ended with exit code {code}."
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"its process was killed by {name}{hint}."
