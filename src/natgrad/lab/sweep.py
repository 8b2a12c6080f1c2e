"""Run cells on an engine: stored results are reused, failures collected, finished cells kept."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue

from natgrad._checks import describe, instance
from natgrad.errors import DtypeError
from natgrad.lab._progress import Display, Reporter, Tally
from natgrad.lab._store.sources import fingerprint
from natgrad.lab._store.store import CorruptError, Store, Stored, decode, identify
from natgrad.lab.cell import Cell, Result
from natgrad.lab.engines import Engine, Job, Outcome
from natgrad.lab.engines._base import check_timeout
from natgrad.lab.failures import CellsFailedError, Failure, StoreError

__all__ = ["Reporter", "Store", "Sweeper"]

_AGAIN = ("killed", "memory")  # a second attempt, because another process may have used the memory
_ATTEMPTS = 2
_LAG = 30.0  # seconds that a network file system may take to show what another machine wrote


class Sweeper:
    """A `Sweep`: call it with cells, get their results in order.

    Equal cells are computed once. Stored results are reused. A cell that fails does not stop the
    others; at the end all failures are raised together. An interruption, or an error that concerns
    every cell, stops the sweep at once and keeps the finished cells.

    Args:
        engine: Where cells run.
        store: Where results are kept.
        fresh: Compute stored cells again.
        timeout: Seconds after which a cell is killed; None for never.
        reporter: Shows progress; by default nothing is shown.

    Raises:
        InvalidInputError: If the timeout is not positive and finite.

    Attributes:
        done: Number of cells with a result so far, over all calls, including those from the store.
        reused: Number of cells whose result came from the store.
        failures: Cells without a result.
        seconds: Sum of the running times of the cells, including reused ones.

    Example:
        >>> import tempfile
        >>> from dataclasses import dataclass
        >>> from pathlib import Path
        >>> import numpy as np
        >>> from natgrad.lab.engines import Serial
        >>> @dataclass(frozen=True)
        ... class Square:
        ...     x: float
        >>> def square(config):
        ...     return {"y": np.asarray(config.x**2)}
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sweep = Sweeper(Serial(), Store(Path(folder)))
        ...     results = sweep([Cell(square, Square(x)) for x in (2.0, 3.0, 2.0)], "squares")
        >>> [float(result["y"]) for result in results], sweep.done, sweep.reused
        ([4.0, 9.0, 4.0], 2, 0)
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        fresh: bool = False,
        timeout: float | None = None,
        reporter: Reporter | None = None,
    ) -> None:
        if not isinstance(engine, Engine):
            raise DtypeError(f"engine must be an Engine, but is {describe(engine)}.")
        self.engine = engine
        self.store = instance(store, "store", Store)
        self.fresh, self.timeout = fresh, check_timeout(timeout)
        self.reporter = reporter or Reporter(quiet=True)
        self.done = self.reused = 0
        self.seconds = 0.0
        self.failures: list[Failure] = []
        self._computed: set[str] = set()  # with `fresh`, a cell is still computed only once

    @property
    def failed(self) -> int:
        """Return the number of cells without a result."""
        return len(self.failures)

    def __call__(self, cells: Sequence[Cell], title: str = "") -> list[Result]:
        """Return one result per cell.

        Raises:
            CellsFailedError: If cells failed; all others are in the store.
            StoreError: If results cannot be kept.
            SchedulerError: If the connection to the cluster is lost.
            WorkerError: If workers do not start, or have different sources.
        """
        if not isinstance(cells, Sequence) or not all(isinstance(cell, Cell) for cell in cells):
            raise DtypeError(f"cells must be a sequence of cells, but are {describe(cells)}.")
        sources = {f: fingerprint(f) for f in {cell.function for cell in cells}}
        identities = [identify(cell, sources[cell.function]) for cell in cells]
        unique = {i.key: (cell, i) for cell, i in zip(cells, identities, strict=True)}
        with self.store.opened() as mark:
            results = self._stored(list(unique))
            jobs = {key: Job(*unique[key], mark) for key in unique if key not in results}
            tally = Tally(len(unique), done=len(results), reused=len(results))
            failures: list[Failure] = []
            try:
                with self.reporter.sweep(title, tally) as display:
                    _Batch(self, jobs, display, failures).run()
            finally:
                self.done += tally.done
                self.reused += tally.reused
                self.failures += failures
            if failures:
                raise CellsFailedError(failures, len(unique))
            results |= {key: self._read_back(key) for key in jobs}
        self.seconds += sum(stored.seconds for stored in results.values())
        return [results[identity.key].arrays for identity in identities]

    def _stored(self, keys: Sequence[str]) -> dict[str, Stored]:
        usable = [key for key in keys if not self.fresh or key in self._computed]
        return {key: stored for key in usable if (stored := self.store.get(key)) is not None}

    def _read_back(self, key: str) -> Stored:
        deadline = time.monotonic() + _LAG
        while (stored := self.store.get(key)) is None:
            if time.monotonic() > deadline:
                raise StoreError(
                    f"a worker has stored {self.store.path(key)}, but it cannot be read here; "
                    "check that workers and this machine see the same folder, and start again."
                )
            time.sleep(0.1)
        self._computed.add(key)
        return stored


class _Batch:
    """The jobs of one call while they run."""

    def __init__(
        self,
        sweeper: Sweeper,
        jobs: Mapping[str, Job],
        display: Display,
        failures: list[Failure],
    ) -> None:
        self._engine, self._store = sweeper.engine, sweeper.store
        self._timeout = sweeper.timeout
        self._jobs, self._display, self._failures = jobs, display, failures
        self._attempts: Counter[str] = Counter()
        self._under_way: dict[str, Future[Outcome]] = {}
        self._ended: SimpleQueue[tuple[str, Future[Outcome]]] = SimpleQueue()

    def run(self) -> None:
        """Return when every job has ended, with a result or a failure."""
        if self._jobs and not self._engine.workers:
            self._display.say("there are no workers yet; cells wait for the first one.")
        try:
            for key in self._jobs:
                self._submit(key)
                while not self._ended.empty():
                    self._settle(*self._ended.get())
            while self._under_way:
                try:
                    self._settle(*self._ended.get(timeout=1.0))
                except Empty:
                    self._display.update()
        except BaseException:
            self._engine.cancel(list(self._under_way.values()))
            self._save_the_rest()
            raise

    def _submit(self, key: str) -> None:
        self._attempts[key] += 1
        future = self._engine.submit(self._jobs[key], self._timeout)
        self._under_way[key] = future
        future.add_done_callback(lambda done: self._ended.put((key, done)))

    def _settle(self, key: str, future: "Future[Outcome]") -> None:
        """Record a job that has ended; raise an error that concerns all jobs."""
        del self._under_way[key]
        outcome = future.result()
        tally = self._display.tally
        if outcome.kind == "done":
            self._keep(key, outcome)
            tally.done += 1
        elif outcome.kind in _AGAIN and self._attempts[key] < _ATTEMPTS:
            self._submit(key)  # after the jobs that already wait
        else:
            self._failures.append(self._failure(key, outcome))
            tally.failed += 1
        self._display.update()

    def _keep(self, key: str, outcome: Outcome) -> None:
        if outcome.data is not None:  # the worker does not share the store
            if decode(outcome.data).identity.key != key:
                raise CorruptError(f"a worker returned the result of another cell than {key}.")
            self._store.put(key, outcome.data)

    def _save_the_rest(self) -> None:
        """Keep results that had arrived when the sweep was stopped."""
        while not self._ended.empty():
            key, future = self._ended.get()
            if not future.cancelled() and future.exception() is None:
                outcome = future.result()
                if outcome.kind == "done":
                    self._keep(key, outcome)
                    self._display.tally.done += 1

    def _failure(self, key: str, outcome: Outcome) -> Failure:
        assert outcome.kind != "done"
        cell, identity = self._jobs[key].cell, self._jobs[key].identity
        return Failure(
            label=cell.label,
            function=identity.function,
            config=identity.config,
            kind=outcome.kind,
            message=outcome.message,
            traceback=outcome.traceback,
            attempts=self._attempts[key],
        )
