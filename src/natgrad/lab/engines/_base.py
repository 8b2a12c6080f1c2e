"""The common parts of all engines: jobs, outcomes, and the function that runs a job."""

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

from natgrad._checks import number
from natgrad._checksum import digest
from natgrad.lab._store.sources import fingerprint
from natgrad.lab._store.store import Identity, Store, encode, shared
from natgrad.lab.cell import Cell, Result
from natgrad.lab.failures import Kind, WorkerError

_LAB = Path(__file__).parents[1]


@dataclass(frozen=True)
class Job:
    """A cell to be run by a worker.

    Attributes:
        cell: The cell.
        identity: The identity of its result; the worker checks that it has the same sources.
        mark: Path of the store's mark; a worker that sees it shares the store.

    Example:
        >>> from natgrad.lab._environment import cores
        >>> identity = Identity("m:f", "{}", "0", "2.13.0")
        >>> Job(Cell(cores, None, "a label"), identity, "/tmp/mark").cell.label
        'a label'
    """

    cell: Cell
    identity: Identity
    mark: str


@dataclass(frozen=True)
class Outcome:
    """The result of a job, or how it failed.

    Attributes:
        kind: "done", or how it failed.
        seconds: How long the cell ran.
        data: Contents of the result's file, if the worker does not share the store.
        message: What went wrong, in one line.
        traceback: The last frames of an exception.

    Example:
        >>> Outcome("timeout", 60.0, message="killed after 60 s.").kind
        'timeout'
    """

    kind: Literal["done"] | Kind
    seconds: float = 0.0
    data: bytes | None = None
    message: str = ""
    traceback: str = ""


class Engine(ABC):
    """Run jobs somewhere.

    A future holds an `Outcome`, whatever the cell did. It holds an exception only for errors that
    concern every cell: the disk is full, workers do not start, the scheduler has ended.

    Attributes:
        name: As typed on the command line.
        workers: How many cells run at once.

    Example:
        >>> from natgrad.lab.engines import start_engine
        >>> with start_engine("serial") as engine:
        ...     isinstance(engine, Engine), engine.name
        (True, 'serial')
    """

    name: str
    workers: int

    @abstractmethod
    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        """Run a job, now or when a worker is free; kill it after `timeout` seconds of running."""

    @abstractmethod
    def cancel(self, futures: "Iterable[Future[Outcome]]") -> None:
        """Drop these jobs, and kill those that run."""

    @abstractmethod
    def close(self) -> None:
        """End at once every process that the engine started; may be called again."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def check_timeout(timeout: float | None) -> float | None:
    """Return the checked time limit of a cell in seconds; None for no limit.

    Raises:
        InvalidInputError: If they are not positive and finite.
    """
    return None if timeout is None else number(timeout, "timeout", low=0, low_open=True)


def execute(job: Job, running: Callable[[], None] = lambda: None) -> Outcome:
    """Run a job in this process, and store its result if this process sees the store.

    The global random generators are seeded from function and config, and restored afterwards. So
    cells that use them, as torch modules do for their weights, are pure functions too.

    Args:
        job: The job.
        running: Called when the cell starts to run, after its imports.

    Raises:
        StoreError: If this process sees the store but cannot write it.
        WorkerError: If this process has different sources than the sweep started with.
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
    """Check that this process has the sources and the torch that the sweep started with."""
    begun, sources = job.identity, _sources(job.cell.function)
    if (sources, str(torch.__version__)) != (begun.sources, begun.torch):
        what = "torch" if sources == begun.sources else "natgrad or of the experiment"
        raise WorkerError(
            f"a worker has another version of {what} than the sweep started with. Install the "
            "same version everywhere, change no sources during a run, and start again."
        )


@lru_cache(maxsize=256)  # a process keeps running the code that it imported first
def _sources(function: Callable[..., Result]) -> str:
    return fingerprint(function)


def _frames(error: BaseException, last: int = 4) -> str:
    """Return the last frames of a traceback, without those of the laboratory."""
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if _LAB not in Path(frame.filename).parents]
    return "".join(traceback.format_list(frames[-last:]))
