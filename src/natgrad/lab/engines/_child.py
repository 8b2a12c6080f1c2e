"""The parent's side of a child process, which runs one job at a time and can be killed."""

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

_SLICE = 0.25  # seconds between checks whether the job is still wanted
_STARTS = 3  # processes that may end before their job starts


class Cancelled(Exception):
    """A job was killed because it was canceled."""


class Children:
    """Child processes that run jobs; a thread holds one for the time of a job."""

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
        """Run a job in a free child, or in a new one; see `Child.run`."""
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
        """Return the ids of the live processes."""
        return [child.pid for child in list(self._all) if child.pid is not None]

    def hurry(self) -> None:
        """Start no more processes until closed."""
        self._spawner.hurry()

    def close(self, patience: float = 0.0) -> None:
        """Kill all idle children; wait up to `patience` seconds for the others to become idle."""
        deadline = time.monotonic() + patience
        while len(self._idle) < len(self._all) and time.monotonic() < deadline:
            time.sleep(0.02)
        for child in list(self._idle):
            child.kill()
        self._spawner.close()


class Child:
    """A process with one thread, started for the first job and again after it was lost."""

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
        """Run a job and return its outcome.

        Args:
            parcel: The packed job.
            timeout: Seconds of running after which the process is killed.
            unwanted: Called four times per second; the process is killed when it returns True.

        Raises:
            StoreError: If the child sees the store but cannot write it.
            WorkerError: If several processes in a row end before the job starts, or have different
                sources than the sweep started with.
            Cancelled: If `unwanted` returned True.
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
                raise  # the process itself is fine
            except BaseException:
                self.kill()
                raise
        raise WorkerError(
            f"{_STARTS} worker processes in a row ended before a job started: {_obituary(code)} "
            "Their output says why; `natgrad verify` shows whether natgrad itself works."
        )

    def _talk(self, timeout: float | None, unwanted: Callable[[], bool]) -> "_Conversation":
        if self.pid is None or self._connection is None:
            self.pid, self._connection = self._spawner.spawn()
        pid = self.pid
        return _Conversation(self._connection, lambda: self._spawner.ended(pid), timeout, unwanted)

    def kill(self) -> int | None:
        """Kill the process and its children; return its exit code if it is known."""
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
    """The cell ran longer than allowed."""


class _Conversation:
    """One job sent to a process, and the answers to it."""

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
                raise EOFError  # even if a process that the cell started keeps the connection open


def _obituary(code: int | None) -> str:
    if code is None:
        return "its process ended."
    if code >= 0:
        return f"its process ended with exit code {code}."
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", as the system does when it runs out of memory" if name == "SIGKILL" else ""
    return f"its process was killed by {name}{hint}."
