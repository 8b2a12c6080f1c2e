"""What every engine takes and gives: a job, an outcome, and the one function that runs a job."""

import random
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import numpy as np
import torch

from natgrad._checksum import digest
from natgrad.lab._store.sources import fingerprint
from natgrad.lab._store.store import Identity, Store, encode, shared
from natgrad.lab.cell import Cell, Result
from natgrad.lab.failures import Kind, WorkerError

_LAB = Path(__file__).parents[1]


@dataclass(frozen=True)
class Job:
    """A cell on its way to a worker.

    Attributes:
        cell: The cell.
        identity: What its result depends on; the worker checks that it has the same sources.
        mark: Path of the store's mark: who sees it shares the store.
    """

    cell: Cell
    identity: Identity
    mark: str


@dataclass(frozen=True)
class Outcome:
    """What became of a job.

    Attributes:
        kind: "done", or how it failed.
        seconds: How long the cell ran.
        data: Contents of the file to store, if the worker does not share the store.
        message: What went wrong, in one line.
        traceback: The last frames of an exception.
    """

    kind: Literal["done"] | Kind
    seconds: float = 0.0
    data: bytes | None = None
    message: str = ""
    traceback: str = ""


class Engine(ABC):
    """Run jobs somewhere.

    A future holds an `Outcome`, whatever the cell did. It holds an exception only for what
    concerns every cell: the disk is full, workers do not start, the scheduler has gone.

    Attributes:
        name: As typed on the command line.
        workers: How many cells run at once.
    """

    name: str
    workers: int

    @abstractmethod
    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        """Run a job, now or when a worker is free; kill it after `timeout` seconds of running."""

    @abstractmethod
    def cancel(self, futures: "Iterable[Future[Outcome]]") -> None:
        """Forget these jobs, and kill those that run."""

    @abstractmethod
    def close(self) -> None:
        """End every process that the engine started, at once; safe to call again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def execute(job: Job, running: Callable[[], None] = lambda: None) -> Outcome:
    """Run a job in this process, and store its result if the store is in sight.

    The global random generators are seeded from function and config, and put back afterwards: a
    cell that takes numbers from them, as modules of torch do for their weights, still depends on
    nothing else.

    Args:
        job: The job.
        running: Called when the cell begins to run, everything it needs being imported.

    Raises:
        StoreError: If the store is in sight and cannot be written.
        WorkerError: If this process has other sources than the sweep was begun with.
    """
    _same_code(job)
    running()
    begin = time.perf_counter()
    try:
        with _seeded(job.identity):
            result = job.cell.run()
        seconds = time.perf_counter() - begin
        data = encode(job.identity, result, seconds, job.cell.label)
    except (Exception, SystemExit) as error:
        kind: Kind = "memory" if isinstance(error, MemoryError) else "exception"
        seconds = time.perf_counter() - begin
        return Outcome(kind, seconds, message=sentence(error), traceback=_frames(error))
    root = shared(job.mark)
    if root is None:
        return Outcome("done", seconds, data)
    Store(root).put(job.identity.key, data)
    return Outcome("done", seconds)


@contextmanager
def _seeded(identity: Identity) -> Iterator[None]:
    seed = int(digest(identity.function, identity.config)[:8], 16)
    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


def sentence(error: BaseException) -> str:
    """Return the class and the message of an exception in one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__


def _same_code(job: Job) -> None:
    """Make sure that this process computes what the name of the result will say."""
    begun, sources = job.identity, _sources(job.cell.function)
    if (sources, str(torch.__version__)) != (begun.sources, begun.torch):
        what = "torch" if sources == begun.sources else "natgrad or of the experiment"
        raise WorkerError(
            f"a worker has another version of {what} than the sweep was begun with. Install the "
            "same everywhere, change no source during a run, and start again."
        )


@lru_cache(maxsize=256)  # a process keeps the code that it imported first
def _sources(function: Callable[..., Result]) -> str:
    return fingerprint(function)


def _frames(error: BaseException, last: int = 4) -> str:
    """Return the last frames of a traceback, those of the laboratory itself left out."""
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if _LAB not in Path(frame.filename).parents]
    return "".join(traceback.format_list(frames[-last:]))
