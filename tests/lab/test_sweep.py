"""Sweeps: order, reuse, failures, interruptions, full disks."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from natgrad.lab import sweep as sweep_module
from natgrad.lab._progress import Reporter
from natgrad.lab._store.atomic import is_temporary
from natgrad.lab._store.store import CorruptError, Store, StoreWarning, identify
from natgrad.lab.cell import Cell
from natgrad.lab.engines import Engine, Job, Outcome, Serial
from natgrad.lab.failures import CellsFailedError, SchedulerError, StoreError
from natgrad.lab.sweep import Sweeper
from tests.lab.conftest import ROOT, until
from tests.lab.test_store import small_disk  # noqa: F401  (a fixture)
from tests.lab.toys import Draw, Trouble, misbehave, reduce


def cells(*kinds: str, folder: Path | str = "") -> list[Cell]:
    return [
        Cell(misbehave, Trouble(kind, str(folder), seed), f"{kind} {seed}")
        for seed, kind in enumerate(kinds)
    ]


def tries(folder: Path) -> int:
    return len([path for path in folder.iterdir() if path.is_file()])


class Counting(Serial):
    """Serial, and counting."""

    def __init__(self) -> None:
        super().__init__()
        self.labels: list[str] = []

    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        self.labels.append(job.cell.label)
        return super().submit(job, timeout)


def test_results_come_in_order_and_equal_cells_run_once(store) -> None:
    engine = Counting()
    sweep = Sweeper(engine, store)
    made = [Cell(misbehave, Trouble("fine", seed=k), str(i)) for i, k in enumerate((3, 1, 3, 2, 1))]
    assert [float(r["y"]) for r in sweep(made)] == [3.0, 1.0, 3.0, 2.0, 1.0]
    assert len(engine.labels) == 3
    assert (sweep.done, sweep.reused, sweep.failed) == (3, 0, 0)
    assert sweep([]) == []


def test_stored_results_are_reused_and_fresh_ones_computed_once(store) -> None:
    made = cells("fine", "fine")
    assert Sweeper(Serial(), store)(made)
    engine = Counting()
    again = Sweeper(engine, store)
    assert [float(r["y"]) for r in again(made)] == [0.0, 1.0]
    assert engine.labels == []
    assert (again.done, again.reused) == (2, 2)
    assert again.seconds > 0
    fresh = Sweeper(engine, store, fresh=True)
    fresh(made[:1])
    fresh(made)  # the first of them is fresh already
    assert engine.labels == ["fine 0", "fine 1"]
    assert (fresh.done, fresh.reused) == (3, 1)


def test_fresh_results_replace_the_stored_ones(store) -> None:
    (cell,) = cells("fine")
    Sweeper(Serial(), store)([cell])
    path = store.path(identify(cell).key)
    before = path.stat().st_ino
    Sweeper(Serial(), store, fresh=True)([cell])
    assert path.stat().st_ino != before
    assert [p for p in store.root.rglob("*") if p.is_file()] == [path]


def test_a_damaged_result_is_computed_again(store) -> None:
    made = cells("fine", "fine")
    Sweeper(Serial(), store)(made)
    path = store.path(identify(made[1]).key)
    path.write_bytes(path.read_bytes()[:-1])
    engine = Counting()
    with pytest.warns(StoreWarning, match="set aside"):
        results = Sweeper(engine, store)(made)
    assert [float(r["y"]) for r in results] == [0.0, 1.0]
    assert engine.labels == ["fine 1"]


def test_failures_are_collected_and_the_others_stored(local, store, tmp_path) -> None:
    made = cells("fine", "exception", "exit", "fine", "sleep", "memory", folder=tmp_path)
    sweep = Sweeper(local, store, timeout=3)
    with pytest.raises(CellsFailedError, match=r"4 of 6 cells failed; first ") as caught:
        sweep(made)
    found = {f.label: f for f in caught.value.failures}
    kinds = {label: f.kind for label, f in found.items()}
    assert kinds == {
        "exception 1": "exception", "exit 2": "killed", "sleep 4": "timeout", "memory 5": "memory",
    }  # fmt: skip
    twice = {label for label, f in found.items() if f.attempts == 2}
    assert twice == {"exit 2", "memory 5"}
    assert tries(tmp_path) == 8
    assert found["exception 1"].function == "tests.lab.toys:misbehave"
    assert json.loads(found["exception 1"].config)["seed"] == 1
    assert "ZeroDivisionError" in found["exception 1"].message
    assert set(found["sleep 4"].to_json()) == {
        "label", "function", "config", "kind", "message", "traceback", "attempts",
    }  # fmt: skip
    assert (sweep.done, sweep.failed, sweep.failures) == (2, 4, caught.value.failures)
    again = Sweeper(local, store)
    again([made[0], made[3]])
    assert again.reused == 2


def test_a_cell_whose_process_was_killed_gets_a_second_chance(local, store, tmp_path) -> None:
    (result,) = Sweeper(local, store)(cells("killed once", folder=tmp_path))
    assert result["y"] == 0.0
    assert tries(tmp_path) == 2


class Elsewhere(Serial):
    """An engine whose workers do not see the store."""

    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        return super().submit(replace(job, mark="/nowhere"), timeout)


def test_the_parent_writes_for_workers_that_do_not_share_the_store(store) -> None:
    made = cells("fine", "fine")
    results = Sweeper(Elsewhere(), store)(made)
    assert [float(r["y"]) for r in results] == [0.0, 1.0]
    assert all(store.get(identify(cell).key) for cell in made)


class Mistaken(Serial):
    """An engine that returns the result of another cell."""

    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        other = cells("fine", "fine")[1]
        return super().submit(Job(other, identify(other), "/nowhere"), timeout)


def test_a_result_of_another_cell_is_not_stored(store) -> None:
    with pytest.raises(CorruptError, match="the result of another cell than"):
        Sweeper(Mistaken(), store)(cells("fine"))
    assert not [path for path in store.root.rglob("*") if path.is_file()]


def test_a_result_that_cannot_be_read_back_is_reported(store, monkeypatch) -> None:
    monkeypatch.setattr(sweep_module, "_LAG", 0.2)
    monkeypatch.setattr(Store, "put", lambda self, key, data: None)
    with pytest.raises(StoreError, match=r"has stored .* but it cannot be read here"):
        Sweeper(Serial(), store)(cells("fine"))


def test_cells_wait_for_workers_that_are_still_to_come(store, capfd) -> None:
    class Empty(Serial):
        workers = 0

    Sweeper(Empty(), store, reporter=Reporter())(cells("fine"), "curves")
    assert capfd.readouterr().err.startswith("curves: there are no workers yet; cells wait")


class Slow(Engine):
    """An engine whose jobs never end, except the first: it fails in a way that concerns all."""

    name, workers = "slow", 1

    def __init__(self, error: BaseException) -> None:
        self._error = error
        self.cancelled: list[Future[Outcome]] = []
        self.futures: list[Future[Outcome]] = []

    def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
        self.futures.append(Future())
        if len(self.futures) == 3:
            self.futures[0].set_exception(self._error)
        return self.futures[-1]

    def cancel(self, futures: "Iterable[Future[Outcome]]") -> None:
        self.cancelled = list(futures)

    def close(self) -> None: ...


def test_what_concerns_every_cell_stops_the_sweep_at_once(store) -> None:
    engine = Slow(SchedulerError("the scheduler has gone."))
    with pytest.raises(SchedulerError):
        Sweeper(engine, store)(cells(*["fine"] * 50))
    assert len(engine.futures) == 3
    assert engine.cancelled == engine.futures[1:]


def test_results_that_had_arrived_are_kept_when_a_sweep_is_stopped(store) -> None:
    made = cells(*["fine"] * 6)

    class Arriving(Slow):
        """Results of the second and third job arrive with the news that all is over."""

        def cancel(self, futures: "Iterable[Future[Outcome]]") -> None:
            for cell, future in zip(made[1:3], futures, strict=False):
                job = Job(cell, identify(cell), "/nowhere")
                future.set_result(Serial().submit(job).result())

    sweep = Sweeper(Arriving(KeyboardInterrupt()), store)
    with pytest.raises(KeyboardInterrupt):
        sweep(made)
    assert [store.get(identify(cell).key) is not None for cell in made[:4]] == [
        False, True, True, False,
    ]  # fmt: skip
    assert sweep.done == 2


def test_a_store_that_cannot_be_written_is_found_before_anything_runs(tmp_path) -> None:
    (tmp_path / "runs").write_text("a file")
    engine = Counting()
    with pytest.raises(StoreError, match="not a directory"):
        Sweeper(engine, Store(tmp_path / "runs"))(cells("fine"))
    assert engine.labels == []


def test_a_disk_that_fills_up_stops_the_sweep_and_keeps_what_is_there(
    local,
    small_disk,  # noqa: F811
    tmp_path,
) -> None:
    store = Store(small_disk / "store")
    # Small enough that several fit, also when two processes write at the same time.
    big = [Cell(reduce, Draw(size=600, seed=seed, big=True)) for seed in range(40)]
    sweep = Sweeper(local, store)
    with pytest.raises(StoreError, match="the disk is full"):
        sweep(big)
    # The other worker may have been killed while it wrote, which leaves a file for `clean`.
    files = [path for path in store.root.rglob("*") if path.is_file() and not is_temporary(path)]
    assert 0 < len(files) < 40
    assert all(store.get(path.stem) is not None for path in files)


def test_progress_tells_done_failed_and_reused(store, capfd) -> None:
    Sweeper(Serial(), store)(cells("fine"))
    with pytest.raises(CellsFailedError):
        Sweeper(Serial(), store, reporter=Reporter())(cells("fine", "exception", "fine"), "curves")
    out, error = capfd.readouterr()
    assert out == ""
    assert error == "curves: 2 of 3 cells, 1 reused, 1 failed, 0 s\n"


INTERRUPTED = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from natgrad.lab.engines import start_engine
from natgrad.lab._store.store import Store
from natgrad.lab.sweep import Sweeper
from tests.lab.test_sweep import cells

name, folder = sys.argv[1:]
with start_engine(name) as engine:
    sweep = Sweeper(engine, Store(folder + "/store"))
    try:
        sweep(cells("fine", "fine", *["sleep"] * 50, folder=folder))
    except KeyboardInterrupt:
        print("interrupted", sweep.done)
"""


@pytest.mark.parametrize(
    "name", ["local", *(pytest.param(n, marks=pytest.mark.slow) for n in ("serial", "dask"))]
)
def test_an_interruption_waits_for_nothing_and_keeps_everything(tmp_path, name) -> None:
    if name == "dask":
        pytest.importorskip("distributed")
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, name, str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    store = Store(tmp_path / "store")
    made = [identify(cell).key for cell in cells("fine", "fine", folder=tmp_path)]

    def busy() -> bool:
        kept = all(store.get(key) is not None for key in made)
        return kept and len(list(tmp_path.glob("sleep-*"))) == (1 if name == "serial" else 2)

    with process, ExitStack() as stack:
        stack.callback(process.kill)  # a test that fails does not wait for the sleepers
        until(busy)
        time.sleep(0.2)  # between keeping a result and counting it
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)  # a cell would sleep for ten minutes
    assert out == "interrupted 2\n"
    assert all(store.get(key) is not None for key in made)


@pytest.mark.slow
def test_the_whole_group_may_receive_the_interruption(tmp_path) -> None:
    """As from a terminal: workers must leave the decision to their parent."""
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "local", str(tmp_path)],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0,
    )  # fmt: skip
    with process:
        until(lambda: len(list(tmp_path.glob("sleep-*"))) == 2)
        os.killpg(process.pid, signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert (out, error) == ("interrupted 2\n", "")


@pytest.mark.slow
def test_two_sweeps_at_once_share_a_store(tmp_path) -> None:
    code = (
        "import sys; from tests.lab.test_sweep import *\n"
        "made = [Cell(reduce, Draw(20, seed)) for seed in range(60)]\n"
        "results = Sweeper(Serial(), Store(sys.argv[1]))(made)\n"
        "print(sum(float(r['numpy']) for r in results).hex())"
    )
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    sums = {process.communicate()[0] for process in both}
    assert len(sums) == 1
    assert all(process.returncode == 0 for process in both)
    assert len([p for p in tmp_path.rglob("*") if p.is_file()]) == 60


def test_time_of_the_cells_is_added_up(store) -> None:
    begin = time.perf_counter()
    sweep = Sweeper(Serial(), store)
    sweep([Cell(reduce, Draw(3, seed, pause=0.05)) for seed in range(3)])
    assert 0.15 <= sweep.seconds <= time.perf_counter() - begin
