"""One cell after the other, in this process."""

import sys
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import redirect_stdout

from natgrad.lab.engines._base import Engine, Job, Outcome, execute
from natgrad.lab.engines._child import Children
from natgrad.lab.engines._parcel import pack
from natgrad.lab.engines._threads import one_thread
from natgrad.lab.failures import StoreError, WorkerError


class Serial(Engine):
    """Run each job in this process when it is submitted: for debugging and small sweeps.

    With a timeout, the job runs in a child process, because only a process can be killed.

    Example:
        >>> with Serial() as engine:
        ...     engine.workers
        1
    """

    name = "serial"
    workers = 1

    def __init__(self) -> None:
        self._children = Children()

    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        """Run a job, and return when it has ended."""
        future: Future[Outcome] = Future()
        try:
            future.set_result(self._run(job, timeout))
        except (StoreError, WorkerError) as error:
            future.set_exception(error)
        return future

    def _run(self, job: Job, timeout: float | None) -> Outcome:
        if timeout is not None:
            return self._children.run(pack(job), timeout)
        with (
            one_thread(),
            redirect_stdout(sys.stderr),
        ):  # as in workers, because stdout is for results
            return execute(job)

    def cancel(self, futures: "Iterable[Future[Outcome]]") -> None:
        """Do nothing: every submitted job has ended."""

    def close(self) -> None:
        """End the child, if there is one."""
        self._children.close()
