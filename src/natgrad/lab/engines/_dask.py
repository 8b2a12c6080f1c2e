"""A Dask cluster: an existing scheduler by address, or a small one started here.

A Dask worker runs each cell in a separate child process, so that a cell can be killed and never
ends the Dask worker.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from secrets import token_hex
from typing import Any

from distributed import Client, LocalCluster, Security, get_worker, rpc
from distributed.scheduler import KilledWorker

from natgrad.errors import InvalidInputError
from natgrad.lab._environment import cores
from natgrad.lab.engines._base import Engine, Job, Outcome, sentence
from natgrad.lab.engines._child import Children
from natgrad.lab.engines._parcel import pack
from natgrad.lab.failures import SchedulerError, StoreError, WorkerError

_PATIENCE = 3.0  # seconds to wait for a scheduler's first answer
_LOST = (
    "the connection to the Dask scheduler is lost. Finished cells are kept; start again to "
    "continue."
)


class Dask(Engine):
    """Run jobs on the workers of a Dask scheduler.

    Anyone who reaches a scheduler can make its workers run anything: keep it on a private network,
    or use TLS. See docs/clusters.md.

    Args:
        scheduler: Its address, such as "tcp://host:8786"; None starts a cluster on this machine.
        workers: Number of workers of the cluster started here; by default one per core.

    Raises:
        SchedulerError: If no scheduler answers at the address.
    """

    name = "dask"

    def __init__(self, scheduler: str | None = None, workers: int | None = None) -> None:
        if scheduler is not None and workers is not None:
            raise InvalidInputError(
                "a running scheduler already has workers; give its address or a number of "
                "workers, not both."
            )
        self._cluster: Any = None
        if scheduler is None:
            self._cluster = LocalCluster(
                n_workers=1,
                threads_per_worker=workers or cores(),
                processes=False,  # each cell runs in its own process
                # Both serve HTTP without authentication, so they listen on loopback, at any free
                # port.
                dashboard_address="127.0.0.1:0",
                worker_dashboard_address="127.0.0.1:0",
                memory_limit=0,
                silence_logs=logging.CRITICAL,  # no message for an interrupted cell
            )
            scheduler = str(self._cluster.scheduler_address)
        else:
            _find_scheduler(scheduler)
        self._client: Any = Client(
            scheduler, name="natgrad", set_as_default=False, timeout=_PATIENCE
        )
        self._inner: dict[Future[Outcome], Any] = {}

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Return how many cells can run at once now; a cluster may grow and shrink."""
        try:
            return sum(self._client.nthreads().values())
        except Exception as error:
            raise SchedulerError(_LOST) from error

    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        """Run a job when a worker is free; kill it after `timeout` seconds of running."""
        outer: Future[Outcome] = Future()
        key = f"natgrad-{token_hex(8)}"
        parcel = pack(job)
        try:
            inner = self._client.submit(_run_in_child, parcel, timeout, key=key, pure=False)
        except Exception as error:
            raise SchedulerError(_LOST) from error
        self._inner[outer] = inner
        outer.add_done_callback(lambda done: self._inner.pop(done, None))
        inner.add_done_callback(lambda done: _translate(done, outer))
        return outer

    def cancel(self, futures: "Iterable[Future[Outcome]]") -> None:
        """Drop these jobs; Dask workers kill the processes of those that run."""
        outer = list(futures)
        inner = [found for future in outer if (found := self._inner.get(future)) is not None]
        for future in outer:
            future.cancel()
        if inner:
            with suppress(Exception):  # a scheduler that has ended has dropped them already
                self._client.cancel(inner, force=True)

    def close(self) -> None:
        """Disconnect from the scheduler, and end it if it was started here."""
        self.cancel(list(self._inner))
        if self._cluster is not None:
            _children.hurry()
            _children.close(patience=1.0)
        with suppress(Exception):
            self._client.close(timeout=1)
        if self._cluster is not None:
            with suppress(Exception):
                self._cluster.close(timeout=1)


def _find_scheduler(address: str) -> None:
    """Check that a scheduler answers; Dask itself would wait half a minute or forever."""
    # In a new thread, because this one may already have an event loop, as in notebooks.
    with ThreadPoolExecutor(1) as thread:
        try:
            kind = thread.submit(asyncio.run, _ask_for_kind(address)).result()
        except Exception as error:
            reason = "no answer" if isinstance(error, TimeoutError) else sentence(error)
            raise SchedulerError(
                f"there is no Dask scheduler at {address} ({reason}). Start one with `dask "
                "scheduler` and workers with `dask worker`, or check the address."
            ) from error
    if kind != "Scheduler":
        raise SchedulerError(f"at {address} there is a Dask {kind.lower()}, not a scheduler.")


async def _ask_for_kind(address: str) -> str:
    arguments = Security().get_connection_args("client")
    async with asyncio.timeout(_PATIENCE):
        async with rpc(address, connection_args=arguments, timeout=_PATIENCE) as remote:
            return str((await remote.identity())["type"])


def _translate(inner: Any, outer: "Future[Outcome]") -> None:
    """Copy the outcome of Dask's future to ours."""
    if not outer.set_running_or_notify_cancel():
        return
    try:
        outer.set_result(inner.result())
    except KilledWorker as error:
        outer.set_result(Outcome("killed", message=sentence(error)))
    except (StoreError, WorkerError) as error:
        outer.set_exception(error)
    except BaseException as error:
        if inner.cancelled() or isinstance(error, OSError):  # while it was fetched
            reason = _LOST
        else:
            reason = f"the Dask cluster cannot run cells: {sentence(error)}. See its logs."
        outer.set_exception(SchedulerError(reason))


_children = Children()  # children of a Dask worker, perhaps on another machine; they end with it


def _run_in_child(parcel: bytes, timeout: float | None) -> Outcome:
    """Run a job in a child of a Dask worker."""
    return _children.run(parcel, timeout, _released())


def _released() -> Callable[[], bool]:
    """Return a function that tells whether the scheduler has dropped the current task."""
    worker = get_worker()
    key = worker.get_current_task()

    def released() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return released
