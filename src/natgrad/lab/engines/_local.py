"""Processes on this machine, each with one torch thread.

`concurrent.futures.ProcessPoolExecutor` loses every pending cell when a worker dies, and its
workers keep running when the parent is killed. Pebble's pool can hang when workers are killed,
because all of them share one pipe. Here each worker has its own connection, and no lock is shared.
"""

from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Event

from natgrad.errors import InvalidInputError
from natgrad.lab._environment import cores
from natgrad.lab.engines._base import Engine, Job, Outcome
from natgrad.lab.engines._child import Children
from natgrad.lab.engines._parcel import pack


class Local(Engine):
    """Run jobs in processes on this machine, as many at once as there are workers.

    A process that dies costs only the cell it ran, and is replaced. All end when this process ends,
    however it ends.

    Args:
        workers: Number of processes; by default one per core. They start with the first job.

    Example:
        >>> with Local(workers=2) as engine:
        ...     engine.workers, engine.pids()
        (2, [])
    """

    name = "local"

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise InvalidInputError(f"expected at least one worker, not {workers}.")
        self.workers = workers or cores()
        self._children = Children()
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="natgrad")
        self._unwanted: dict[Future[Outcome], Event] = {}

    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        """Run a job when a worker is free; kill it after `timeout` seconds of running."""
        unwanted = Event()
        run = self._children.run
        future = self._threads.submit(run, pack(job), timeout, unwanted.is_set)
        self._unwanted[future] = unwanted
        future.add_done_callback(lambda done: self._unwanted.pop(done, None))
        return future

    def cancel(self, futures: "Iterable[Future[Outcome]]") -> None:
        """Drop these jobs, and kill those that run."""
        for future in futures:
            if not future.cancel() and (unwanted := self._unwanted.get(future)) is not None:
                unwanted.set()

    def pids(self) -> list[int]:
        """Return the ids of the live worker processes."""
        return self._children.pids()

    def close(self) -> None:
        """Kill every worker."""
        self.cancel(list(self._unwanted))
        self._children.hurry()
        self._threads.shutdown(wait=True)
        self._children.close()
