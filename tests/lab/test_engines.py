"""One contract, every engine: outcomes, deadlines, deaths, and the same bits."""

import os
import pickle
import random
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, wait
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.lab import engines
from natgrad.lab._store.store import Store, decode, identify
from natgrad.lab.cell import Cell
from natgrad.lab.engines import Engine, Job, Local, Outcome, Serial, start_engine
from natgrad.lab.engines import _spawner as spawner
from natgrad.lab.engines._child import Cancelled
from natgrad.lab.engines._threads import one_thread
from natgrad.lab.failures import StoreError, WorkerError
from tests.lab.conftest import ROOT, until
from tests.lab.toys import Draw, Trouble, misbehave, reduce

ENGINES = ["serial", "local", "dask"]


@pytest.fixture(scope="module")
def running(local: Engine) -> Iterator[Callable[[str], Engine]]:
    """Engines by name, each started once."""
    made: dict[str, Engine] = {"local": local}
    with ExitStack() as stack:

        def get(name: str) -> Engine:
            if name == "dask":
                pytest.importorskip("distributed")
            if name not in made:
                made[name] = stack.enter_context(start_engine(name))
            return made[name]

        yield get


@pytest.fixture(params=ENGINES)
def engine(request, running) -> Engine:
    found: Engine = running(request.param)
    return found


@pytest.fixture
def job(store: Store) -> Iterator[Callable[..., Job]]:
    with store.opened() as mark:

        def make(kind: str, **fields: object) -> Job:
            cell = Cell(misbehave, Trouble(kind, **fields), kind)  # type: ignore[arg-type]
            return Job(cell, identify(cell), mark)

        yield make


def test_a_finished_job_is_in_the_store(engine, job, store) -> None:
    one = job("fine", seed=3)
    outcome = engine.submit(one).result()
    assert (outcome.kind, outcome.data) == ("done", None)
    stored = store.get(one.identity.key)
    assert stored.arrays["y"] == 3.0
    assert (stored.label, stored.identity) == ("fine", one.identity)
    assert outcome.seconds == stored.seconds > 0


def test_a_worker_that_does_not_see_the_store_returns_the_file(engine, job, store) -> None:
    one = replace(job("fine", seed=3), mark="/nowhere/at/all")
    outcome = engine.submit(one).result()
    assert outcome.kind == "done"
    assert decode(outcome.data).arrays["y"] == 3.0
    assert decode(outcome.data).identity == one.identity
    assert store.get(one.identity.key) is None


@pytest.mark.parametrize(
    ("kind", "outcome", "message"),
    [
        ("exception", "exception", "ZeroDivisionError: one over zero"),
        ("system exit", "exception", "SystemExit: a cell that calls sys.exit"),
        ("memory", "memory", "MemoryError: no more"),
        ("text", "exception", "InvalidInputError: a cell returns arrays of real numbers"),
        ("scalar", "exception", "InvalidInputError: a cell returns arrays by name"),
    ],
)
def test_what_a_cell_raises_becomes_its_outcome(engine, job, kind, outcome, message) -> None:
    found = engine.submit(job(kind)).result()
    assert found.kind == outcome
    assert found.message.startswith(message)
    assert "\n" not in found.message
    if "InvalidInput" not in message:
        assert f"in {misbehave.__name__}" in found.traceback
        assert "natgrad/lab" not in found.traceback


@pytest.mark.parametrize("name", ["local", "dask"])
def test_a_dead_worker_costs_its_own_cell_only(running, job, name) -> None:
    engine = running(name)
    kinds = ["fine", "exit", "fine", "killed", "fork", "fine", "fine"]
    futures = [engine.submit(job(kind, seed=k)) for k, kind in enumerate(kinds)]
    outcomes = [future.result() for future in futures]
    assert [o.kind for o in outcomes] == ["done" if k == "fine" else "killed" for k in kinds]
    messages = [o.message for o in outcomes if o.kind == "killed"]
    assert "exit code 3" in messages[0]
    assert "SIGKILL" in messages[1]
    assert "exit code 4" in messages[2]


@pytest.mark.parametrize("kind", ["sleep", "spin"])
def test_a_cell_over_its_time_is_killed(engine, job, kind) -> None:
    outcome = engine.submit(job(kind), timeout=0.3).result()
    assert (outcome.kind, outcome.message) == ("timeout", "killed after 0.3 s.")
    assert engine.submit(job("fine"), timeout=60).result().kind == "done"


@pytest.mark.parametrize("name", ["local", "dask"])
def test_cancel_kills_what_runs_and_forgets_what_waits(running, job, tmp_path, name) -> None:
    engine = running(name)
    futures = [engine.submit(job("sleep", seed=k, folder=str(tmp_path))) for k in range(8)]
    until(lambda: len(list(tmp_path.glob("sleep-*"))) == engine.workers)
    engine.cancel(futures)
    wait(futures)
    for future in futures:
        with pytest.raises((CancelledError, Cancelled)):
            future.result()
    assert engine.submit(job("fine")).result().kind == "done"
    assert len(list(tmp_path.glob("sleep-*"))) == engine.workers


@pytest.mark.parametrize("name", ["serial", "local"])
def test_cells_may_not_write_to_standard_output(running, job, capfd, name) -> None:
    assert running(name).submit(job("print")).result().kind == "done"
    assert capfd.readouterr().out == ""


def test_cells_that_use_global_generators_are_still_pure(running, job, store) -> None:
    drawn = []
    for name in ENGINES:
        for seed in (0, 1, 0):
            one = job("global", seed=seed)
            assert running(name).submit(one).result().kind == "done"
            drawn.append(store.get(one.identity.key).arrays["y"].tolist())
    assert drawn[:3] == drawn[3:6] == drawn[6:]
    assert drawn[0] == drawn[2] != drawn[1]


def test_a_cell_leaves_the_global_generators_as_they_were(job) -> None:
    def states() -> tuple[object, ...]:
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    before = states()
    Serial().submit(job("global")).result()
    assert states() == before


def sweep_of(engine: Engine, folder: Path) -> list[bytes]:
    """What the cells leave in the store, running times aside."""
    store = Store(folder)
    cells = [Cell(reduce, Draw(size, seed)) for seed, size in enumerate([3, 150, 350])]
    with store.opened() as mark:
        jobs = [Job(cell, identify(cell), mark) for cell in cells]
        wait([engine.submit(job) for job in jobs])
    results = [store.get(job.identity.key) for job in jobs]
    return [r.arrays[name].tobytes() for r in results if r for name in sorted(r.arrays)]


def test_bits_do_not_depend_on_the_engine_or_the_number_of_workers(running, tmp_path) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)  # as a user's process may have it
    try:
        serial = sweep_of(Serial(), tmp_path / "serial")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert len(serial) == 9
    with Local(1) as one:
        assert sweep_of(one, tmp_path / "one") == serial
    assert sweep_of(running("local"), tmp_path / "local") == serial
    assert sweep_of(running("dask"), tmp_path / "dask") == serial


def test_one_thread_limits_the_blas_of_numpy_too() -> None:
    from threadpoolctl import threadpool_info

    np.linalg.svd(np.eye(2))
    with one_thread():
        assert {pool["num_threads"] for pool in threadpool_info()} == {1}


def test_a_job_of_other_sources_is_refused(engine, job) -> None:
    one = job("fine")
    for field, what in (("sources", "natgrad or of the experiment"), ("torch", "torch")):
        other = replace(one, identity=replace(one.identity, **{field: "other"}))
        with pytest.raises(WorkerError, match=f"a worker has another version of {what} than"):
            engine.submit(other).result()
    assert engine.submit(one).result().kind == "done"


def test_a_store_that_cannot_be_written_is_no_failure_of_the_cell(engine, job, store) -> None:
    one = job("fine")
    store.path(one.identity.key).parent.write_text("a file in the place of a folder")
    with pytest.raises(StoreError, match="not a directory"):
        engine.submit(one).result()


def test_a_cell_that_the_worker_cannot_import_is_an_exception(local, job, monkeypatch) -> None:
    vanished = types.ModuleType("vanished")
    exec("def run(config): ...", vanished.__dict__)
    monkeypatch.setitem(sys.modules, "vanished", vanished)
    one = job("fine")
    outcome = local.submit(replace(one, cell=replace(one.cell, function=vanished.run))).result()
    assert outcome.kind == "exception"
    assert outcome.message.startswith("the worker cannot import the cell: ModuleNotFoundError")


def test_workers_that_do_not_start_stop_everything(job, monkeypatch) -> None:
    monkeypatch.setattr(spawner, "_BOOTSTRAP", "raise SystemExit(7)")
    with Local(1) as engine:
        with pytest.raises(WorkerError, match=r"do not start: 3 in a row .* exit code 7"):
            engine.submit(job("fine")).result()


def test_an_idle_worker_that_dies_is_replaced_without_blame(job) -> None:
    with Local(1) as engine:
        assert engine.submit(job("fine")).result().kind == "done"
        (pid,) = engine.pids()
        os.kill(pid, signal.SIGKILL)
        assert engine.submit(job("fine")).result().kind == "done"
        assert engine.pids() != [pid]


def test_workers_whose_spawner_dies_are_replaced(job) -> None:
    with Local(2) as engine:
        futures = [engine.submit(job("fine", seed=seed)) for seed in range(2)]
        assert {future.result().kind for future in futures} == {"done"}
        pids = engine.pids()
        (spawner,) = {parent_of(pid) for pid in pids}
        os.kill(spawner, signal.SIGKILL)
        until(lambda: not any(map(alive, pids)))
        futures = [engine.submit(job("fine", seed=seed)) for seed in range(2)]
        assert {future.result().kind for future in futures} == {"done"}


def test_closing_does_not_wait_for_workers_that_are_only_starting(job, monkeypatch) -> None:
    monkeypatch.setattr(spawner, "_BOOTSTRAP", "import time; time.sleep(600)")
    engine = Local(2)
    futures = [engine.submit(job("fine", seed=seed)) for seed in range(2)]
    until(lambda: any(future.running() for future in futures))
    engine.close()
    assert all(future.cancelled() or future.exception() is not None for future in futures)


def test_closing_ends_every_process(job, tmp_path) -> None:
    with Local(2) as engine:
        engine.submit(job("sleep", folder=str(tmp_path)))
        until(lambda: list(tmp_path.glob("sleep-*")))
        pids = engine.pids()
        assert len(pids) == 1
    assert not any(map(alive, pids))
    engine.close()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


PARENT = """
import sys, time
from natgrad.lab.cell import Cell
from natgrad.lab.engines import Job, start_engine
from natgrad.lab._store.store import Store, identify
from tests.lab.toys import Trouble, misbehave

engine = start_engine(sys.argv[1], workers=2)
with Store(sys.argv[2] + "/store").opened() as mark:
    for k in range(4):
        cell = Cell(misbehave, Trouble("sleep", sys.argv[2], seed=k))
        engine.submit(Job(cell, identify(cell), mark))
    time.sleep(600)
"""


@pytest.mark.parametrize("name", ["local", "dask"])
def test_workers_end_when_their_parent_is_killed(tmp_path, name) -> None:
    if name == "dask":
        pytest.importorskip("distributed")
    parent = subprocess.Popen([sys.executable, "-c", PARENT, name, str(tmp_path)], cwd=ROOT)
    try:
        until(lambda: len(list(tmp_path.glob("sleep-*"))) == 2)
        (spawner,) = _children_of(parent.pid)
        workers = _children_of(spawner)
        assert len(workers) == 2
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not any(map(alive, [spawner, *workers])))


def _children_of(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


SCRIPT = """
from dataclasses import dataclass
import numpy as np
from natgrad.lab.cell import Cell
from natgrad.lab.engines import Local
from natgrad.lab._store.store import Store
from natgrad.lab.sweep import Sweeper

@dataclass(frozen=True)
class Config:
    x: float

def square(config: Config):
    assert isinstance(config, Config)
    return {"y": np.asarray(config.x**2)}

def main():
    with Local(1) as engine:
        sweep = Sweeper(engine, Store("store"))
        print(float(sweep([Cell(square, Config(3.0))])[0]["y"]), sweep.reused)

%s
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [["study.py"], ["-m", "study"]], ids=" ".join)
def test_cells_of_a_script_run_in_workers(tmp_path, how) -> None:
    (tmp_path / "study.py").write_text(SCRIPT % 'if __name__ == "__main__":\n    main()')
    for reused in (0, 1):
        command = [sys.executable, *how]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == f"9.0 {reused}\n", done.stderr


@pytest.mark.slow
def test_a_script_that_would_start_itself_again_and_again_is_told_why(tmp_path) -> None:
    (tmp_path / "study.py").write_text(SCRIPT % "main()")
    command = [sys.executable, "study.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "a cell cannot start workers of its own" in done.stderr


def test_engines_by_name() -> None:
    with start_engine("local", workers=3) as engine:
        assert (engine.name, engine.workers) == ("local", 3)
    with start_engine() as engine:
        assert engine.workers == len(os.sched_getaffinity(0))
    for arguments, message in [
        (("remote",), "there is no engine 'remote'; choose from local, serial, dask"),
        (("serial", 2), "the engine serial has one worker, not 2"),
        (("local", 0), "workers must be an integer of at least 1, but is 0"),
        (("local", None, "tcp://h:1"), "a scheduler needs the engine dask, not local"),
        (("dask", 2, "tcp://h:1"), "give its address or a number of workers, not both"),
    ]:
        name, workers, scheduler = (*arguments, None, None)[:3]
        with pytest.raises(InvalidInputError, match=message):
            start_engine(name, workers=workers, scheduler=scheduler)  # type: ignore[arg-type]


def test_a_missing_dask_is_reported_with_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.delitem(sys.modules, "natgrad.lab.engines._dask", raising=False)
    monkeypatch.delattr(engines, "_dask", raising=False)
    with pytest.raises(UnsupportedError, match=r"pip install 'natgrad\[dask\]'"):
        start_engine("dask")


def test_outcomes_and_errors_survive_the_journey() -> None:
    for value in (Outcome("done", 0.5, b"data"), StoreError("the disk is full")):
        assert repr(pickle.loads(pickle.dumps(value))) == repr(value)
