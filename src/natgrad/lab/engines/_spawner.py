"""Workers that start in milliseconds: one process imports natgrad, and workers are forked from it.

Importing torch takes seconds in every process, and again for each worker that replaces a killed
one. The spawner imports once, computes nothing, and has a single thread, so that forking it is
safe. It serves one process, and ends with it.
"""

import os
import signal
import socket
import struct
import subprocess
import sys
import traceback
from contextlib import suppress
from multiprocessing.connection import Connection
from threading import Lock

from natgrad.errors import InvalidInputError
from natgrad.lab.engines._parcel import import_path
from natgrad.lab.engines._threads import VARIABLES
from natgrad.lab.engines._worker import main
from natgrad.lab.failures import WorkerError

_STARTS = 3
_IN_WORKER = "NATGRAD_WORKER"
_BOOTSTRAP = (
    "import sys; sys.path[:] = {path!r}; "
    "from natgrad.lab.engines._spawner import obey; obey({handle})"
)
_REQUEST, _REPLY = struct.Struct("<cq"), struct.Struct("<q")
_SPAWN, _ENDED, _REAP = b"s", b"e", b"r"
_GONE = -(2**62)


class Spawner:
    """The parent's side: start workers, and ask whether they have ended. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = self._closing = False

    def spawn(self) -> tuple[int, Connection]:
        """Start a worker; return its process id and the connection to it.

        Raises:
            WorkerError: If no process starts.
            InvalidInputError: If this process is itself a worker.
        """
        ours, theirs = socket.socketpair()
        code = 0
        with theirs, self._lock:
            for _ in range(_STARTS):
                if self._control is None and not self._closing:
                    self._start()
                if self._closing:
                    break
                pid = self._ask(_SPAWN, 0, theirs.fileno())
                if pid != _GONE:
                    self._ready = True
                    return pid, Connection(ours.detach())
                code = self._stop()
        ours.close()
        raise WorkerError(
            f"worker processes do not start: {_STARTS} in a row ended at once, the last with exit "
            f"code {code}. Their output says why."
        )

    def ended(self, pid: int) -> bool:
        """Return whether a worker has ended."""
        with self._lock:
            return self._ask(_ENDED, pid) != 0

    def reap(self, pid: int) -> int | None:
        """Wait for the end of a worker; return its exit code, or None if it is unknown."""
        with self._lock:
            code = self._ask(_REAP, pid)
        return None if code == _GONE else code

    def hurry(self) -> None:
        """Start no more workers until closed; release threads that wait for one."""
        self._closing = True
        process = self._process
        if process is not None and not self._ready:
            process.kill()

    def close(self) -> None:
        """End the spawner; the next `spawn` starts it again."""
        self.hurry()
        with self._lock:
            self._stop()
            self._closing = False

    def _ask(self, request: bytes, pid: int, handle: int | None = None) -> int:
        """Return the answer to a request; `_GONE` if the spawner has ended."""
        if self._control is None:
            return _GONE
        handles = [] if handle is None else [handle]
        try:
            socket.send_fds(self._control, [_REQUEST.pack(request, pid)], handles)
            answer = self._control.recv(_REPLY.size, socket.MSG_WAITALL)
        except OSError:
            return _GONE
        except BaseException:  # after Ctrl-C the next request would get this answer
            self._stop()
            raise
        return int(_REPLY.unpack(answer)[0]) if len(answer) == _REPLY.size else _GONE

    def _start(self) -> None:
        if os.environ.get(_IN_WORKER):
            raise InvalidInputError(
                "a cell cannot start workers of its own. In a script, put the code that runs the "
                "sweep under `if __name__ == '__main__':`."
            )
        self._control, theirs = socket.socketpair()
        with theirs:
            code = _BOOTSTRAP.format(path=import_path(), handle=theirs.fileno())
            self._process = subprocess.Popen(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=2,  # standard output is for the parent's results
                pass_fds=[theirs.fileno()],
                process_group=0,  # so that Ctrl-C does not reach it
                env={**os.environ, **VARIABLES, _IN_WORKER: "1"},
            )

    def _stop(self) -> int:
        if self._process is None or self._control is None:
            return 0
        self._control.close()
        self._process.kill()
        code = self._process.wait()
        self._process = self._control = None
        self._ready = False
        return code


def obey(handle: int) -> None:
    """Fork workers for the process at the other end, until that closes the connection."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    control = socket.socket(fileno=handle)
    while True:
        message, handles, _, _ = socket.recv_fds(control, _REQUEST.size, 1)
        if len(message) < _REQUEST.size:
            os._exit(0)
        request, pid = _REQUEST.unpack(message)
        try:
            if request == _SPAWN:
                answer = _fork(control, *handles)
            elif request == _ENDED:
                how = os.WEXITED | os.WNOHANG | os.WNOWAIT
                answer = int(os.waitid(os.P_PID, pid, how) is not None)
            else:
                answer = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        except ChildProcessError:  # a worker of an earlier spawner
            answer = _GONE
        control.sendall(_REPLY.pack(answer))


def _fork(control: socket.socket, handle: int) -> int:
    """Return the process id of a new worker; in the worker, never return."""
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            main(handle)
        except OSError:
            pass  # the parent has ended
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(handle)
    with suppress(OSError):
        os.setpgid(pid, pid)  # so that it is killed together with its children
    return pid
