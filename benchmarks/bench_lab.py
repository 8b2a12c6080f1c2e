"""Cost of the laboratory: answers, trivial cells on each engine, reuse, interruptions.

Each number for cells includes the start of the workers and one flushed file per cell. The peer is
the standard library's pool on the same cells. It stores nothing, loses every pending cell when a
worker dies, and leaves its workers behind when it is killed.
"""

import multiprocessing
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Row, report

from natgrad.lab._store.store import Store
from natgrad.lab.cell import Cell, Result
from natgrad.lab.engines import start_engine
from natgrad.lab.failures import SchedulerError
from natgrad.lab.sweep import Sweeper

CELLS, WORKERS = 1000, 2


@dataclass(frozen=True)
class Trivial:
    x: int
    nap: float = 0.0


def trivial(config: Trivial) -> Result:
    time.sleep(config.nap)
    return {"y": np.asarray(config.x**2)}


def cells(n: int, nap: float = 0.0) -> list[Cell]:
    return [Cell(trivial, Trivial(x, nap), str(x)) for x in range(n)]


def check(results: list[Result]) -> None:
    assert [int(result["y"]) for result in results] == [x**2 for x in range(len(results))]


def overhead(name: str, folder: Path) -> tuple[float, float]:
    """Return milliseconds of a worker per cell, computed and reused."""
    store = Store(folder / name)
    seconds = []
    for _ in range(2):
        begin = time.perf_counter()
        with start_engine(name, workers=None if name == "serial" else WORKERS) as engine:
            check(Sweeper(engine, store)(cells(CELLS)))
        seconds.append(time.perf_counter() - begin)
    workers = 1 if name == "serial" else WORKERS
    return 1e3 * seconds[0] * workers / CELLS, 1e3 * seconds[1] / CELLS


def pool() -> float:
    """Return milliseconds of a worker per cell in the standard library's pool."""
    begin = time.perf_counter()
    with ProcessPoolExecutor(WORKERS, multiprocessing.get_context("spawn")) as executor:
        check(list(executor.map(trivial, [Trivial(x) for x in range(CELLS)])))
    return 1e3 * (time.perf_counter() - begin) * WORKERS / CELLS


def interruption(name: str, folder: Path) -> float:
    """Return the seconds from Ctrl-C in the middle of long cells to the end of every process."""
    moment: list[float] = []

    def press() -> None:
        moment.append(time.perf_counter())
        os.kill(os.getpid(), signal.SIGINT)

    engine = start_engine(name, workers=WORKERS)
    check(Sweeper(engine, Store(folder / "warm"))(cells(4)))  # workers run
    threading.Timer(1.0, press).start()
    try:
        with engine:
            Sweeper(engine, Store(folder / "long"))(cells(CELLS, nap=600.0))
    except KeyboardInterrupt:
        pass
    return time.perf_counter() - moment[0]


def absent_scheduler() -> float:
    """Return the seconds until a fresh process reports that there is no scheduler."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        begin = time.perf_counter()
        try:
            start_engine("dask", scheduler=address)
        except SchedulerError:
            return time.perf_counter() - begin
    raise AssertionError("there was a scheduler")


def killed_parent(folder: Path) -> float:
    """Return the seconds from kill -9 of a process to the end of its workers."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from bench_lab import *\n"
        "with start_engine('local', workers=2) as engine:\n"
        "    Sweeper(engine, Store(sys.argv[2]))(cells(4, nap=0.1) + cells(4, nap=600.0))"
    )
    here = str(Path(__file__).parent)
    parent = subprocess.Popen([sys.executable, "-c", code, here, str(folder / "parent")])
    while len(list((folder / "parent").rglob("*.safetensors"))) < 4:
        time.sleep(0.05)
    (spawner,) = children(parent.pid)
    workers = [spawner, *children(spawner)]
    assert len(workers) == 3
    begin = time.perf_counter()
    parent.kill()
    parent.wait()
    while any(Path(f"/proc/{pid}").exists() and not zombie(pid) for pid in workers):
        time.sleep(0.01)
    return time.perf_counter() - begin


def answer(command: str) -> float:
    """Return the CPU seconds of a fresh process that answers a command, the best of three."""
    seconds = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        words = [sys.executable, "-m", "natgrad", *command.split()]
        subprocess.run(words, capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(seconds)


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


def zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


ANSWERS = ("--help", "list", "reproduce --help", "reproduce kmh21/fig4 --sedes 3", "reprodcue")


def rows(folder: Path) -> list[Row]:
    found = []
    for command in ANSWERS:
        seconds = answer(command)
        found.append(Row(f"natgrad {command}: CPU", seconds, "s", "< 0.4", seconds < 0.4))
    for name, target in (("local", 20.0), ("serial", None), ("dask", None)):
        computed, reused = overhead(name, folder)
        found.append(
            Row(
                f"{name}: a worker's time per trivial cell, {CELLS} cells",
                computed,
                "ms",
                f"< {target:g}" if target else "",
                computed < target if target else None,
                f"{computed / (1 if name == 'serial' else WORKERS):.1f} ms of wall clock per cell; "
                f"reused: {reused:.2f} ms, the start of the engine included",
            )
        )
    found.append(
        Row("ProcessPoolExecutor (spawn), storing nothing, the same", pool(), "ms", "", None)
    )
    for name in ("local", "dask"):
        seconds = interruption(name, folder)
        found.append(Row(f"{name}: from Ctrl-C to the end", seconds, "s", "< 2", seconds < 2))
    seconds = killed_parent(folder)
    found.append(
        Row("local: from kill -9 of the parent to the end of workers", seconds, "s", "", None)
    )
    seconds = absent_scheduler()
    found.append(
        Row("dask: until an absent scheduler is reported", seconds, "s", "< 5", seconds < 5)
    )
    return found


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        report("The laboratory", rows(Path(place)))
