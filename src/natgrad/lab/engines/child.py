"""The near side of a child process, which runs one job at a time and can be killed."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection

from natgrad.errors import InvalidInputError
from natgrad.lab.engines.base import Outcome
from natgrad.lab.engines.parcel import import_path
from natgrad.lab.engines.threads import VARIABLES
from natgrad.lab.engines.worker import BEGUN
from natgrad.lab.failures import StoreError, WorkerError

_SLICE = 0.25  # seconds between looks at whether the job is still wanted
_STARTS = 3  # processes that may end before their job has begun
_BOOTSTRAP = (
    "import sys; sys.path[:] = {path!r}; "
    "from natgrad.lab.engines.worker import main; main({handle}, {parent})"
)
_IN_WORKER = "NATGRAD_WORKER"


class Cancelled(Exception):
    """A job was killed because nobody wants it any more."""


class Children:
    """Child processes to run jobs in, each a thread's for the time of a job, then another's."""

    def __init__(self) -> None:
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
            child = Child()
            self._all.append(child)
        try:
            return child.run(parcel, timeout, unwanted)
        finally:
            self._idle.append(child)

    def pids(self) -> list[int]:
        """Return the processes that live."""
        return [child.pid for child in list(self._all) if child.pid is not None]

    def close(self, patience: float = 0.0) -> None:
        """Kill every child that is not in use; wait a while for those that are."""
        deadline = time.monotonic() + patience
        while len(self._idle) < len(self._all) and time.monotonic() < deadline:
            time.sleep(0.02)
        for child in list(self._idle):
            child.kill()


class Child:
    """A process of one thread, started when there is a job, and again when it was lost."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    @property
    def pid(self) -> int | None:
        """Return the id of the process, None if there is none."""
        process = self._process
        return process.pid if process is not None else None

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
            WorkerError: If process after process ends before the job has begun.
            Cancelled: If `unwanted` said yes.
        """
        for _ in range(_STARTS):
            conversation = _Conversation(*self._ensure(), timeout, unwanted)
            try:
                return conversation.hold(parcel)
            except _Gone:
                code = self.kill()
                if conversation.begun:
                    return Outcome("killed", message=_obituary(code))
            except _TimeUp:
                self.kill()
                return Outcome("timeout", timeout or 0.0, message=f"killed after {timeout:g} s.")
            except StoreError:
                raise  # the process is well
            except BaseException:
                self.kill()
                raise
        raise WorkerError(
            f"{_STARTS} worker processes in a row ended before they began: {_obituary(code)} "
            "What they printed says why; `natgrad verify` tells whether natgrad itself works."
        )

    def _ensure(self) -> tuple[Connection, int]:
        if self._process is None or self._connection is None:
            self._process, self._connection = _start()
        return self._connection, self._process.pid

    def kill(self) -> int:
        """Kill the process and what it started; return its exit code, 0 if there is none."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is None or connection is None:
            return 0
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        connection.close()
        return process.wait()


class _Gone(Exception):
    """The process ended in the middle of a job."""


class _TimeUp(Exception):
    """The cell ran longer than it may."""


class _Conversation:
    """One job sent to a process, and the answers."""

    def __init__(
        self,
        connection: Connection,
        pid: int,
        timeout: float | None,
        unwanted: Callable[[], bool],
    ) -> None:
        self._connection, self._pid = connection, pid
        self._timeout, self._unwanted = timeout, unwanted
        self._deadline = float("inf")
        self.begun = False

    def hold(self, parcel: bytes) -> Outcome:
        try:
            self._connection.send_bytes(parcel)
            while (message := self._answer()) == BEGUN:
                self.begun = True
                if self._timeout is not None:
                    self._deadline = time.monotonic() + self._timeout
        except (EOFError, OSError) as error:
            raise _Gone from error
        outcome = pickle.loads(message)
        if isinstance(outcome, StoreError):
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
            if self._ended():
                raise EOFError

    def _ended(self) -> bool:
        """Tell whether the process is gone, though one of its own keeps the connection open."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        return os.waitid(os.P_PID, self._pid, how) is not None and not self._connection.poll(0)


def _start() -> tuple["subprocess.Popen[bytes]", Connection]:
    if os.environ.get(_IN_WORKER):
        raise InvalidInputError(
            "a cell cannot start workers of its own. In a script, put what runs the sweep under "
            "`if __name__ == '__main__':`."
        )
    ours, theirs = socket.socketpair()
    with theirs:
        handle = theirs.fileno()
        code = _BOOTSTRAP.format(path=import_path(), handle=handle, parent=os.getpid())
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=2,  # standard output belongs to the parent's results
            pass_fds=[handle],
            process_group=0,  # out of reach of Ctrl-C, and killed with what it starts
            env={**os.environ, **VARIABLES, _IN_WORKER: "1"},
        )
    return process, Connection(ours.detach())


def _obituary(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}."
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"its process was killed by {name}{hint}."
