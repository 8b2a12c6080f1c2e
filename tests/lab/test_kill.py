"""kill -9 at random moments: no finished cell is lost, none is damaged, no bit changes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from natgrad.lab._store.store import Store, decode
from natgrad.lab.cell import Cell, Result
from natgrad.lab.engines import Engine, Local, Serial, start_engine
from natgrad.lab.failures import CellsFailedError
from natgrad.lab.sweep import Sweeper
from tests.lab.conftest import ROOT, Cluster, until
from tests.lab.toys import Draw, reduce

KILLS = 20
CELLS = [Cell(reduce, Draw(40, seed, pause=0.02), f"seed {seed}") for seed in range(300)]

COMMAND = [
    sys.executable, "-m", "tests.lab.toys", "reproduce", "toy/a", "--size", "40", "--seeds", "300",
    "--pause", "0.02", "--workers", "2", "--quiet", "--out",
]  # fmt: skip


def bits(results: list[Result]) -> list[bytes]:
    return [r[name].tobytes() for r in results for name in sorted(r)]


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return bits(Sweeper(Serial(), Store(tmp_path_factory.mktemp("uninterrupted")))(CELLS))


class Watch:
    """What was finished when; nothing of it may ever be missing or damaged again."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.random = store, random.Random(seed)
        self.seen: set[Path] = set()
        self.kills = 0

    def finished(self) -> set[Path]:
        return set(self.store.root.rglob("*.safetensors"))

    def moment(self, longest: float) -> None:
        """Wait for a new result, then a random while."""
        before = self.finished()
        until(lambda: self.finished() != before)
        time.sleep(self.random.uniform(0, longest))

    def kill(self, pid: int) -> None:
        self.seen |= self.finished()
        os.kill(pid, signal.SIGKILL)
        self.kills += 1

    def verify(self) -> None:
        now = self.finished()
        assert self.seen <= now
        for path in now:
            assert decode(path.read_bytes()).identity.key == path.stem  # by its checksum
        assert not list(self.store.root.rglob("*.corrupt-*"))


def finish(engine: Engine, watch: Watch) -> list[bytes]:
    """Sweep again and again, as a user would, until no cell was killed twice."""
    while True:
        sweep = Sweeper(engine, watch.store)
        try:
            results = sweep(CELLS)
        except CellsFailedError as error:
            if any((f.kind, f.attempts) != ("killed", 2) for f in error.failures):
                raise
        else:
            watch.verify()
            assert len(watch.finished()) == sweep.done == len(CELLS)
            return bits(results)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killing_the_main_process(tmp_path, uninterrupted) -> None:
    watch = Watch(Store(tmp_path / "store"), seed=0)
    command = [*COMMAND, str(tmp_path)]
    for _ in range(KILLS):
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
        try:
            if watch.random.random() < 0.2:
                time.sleep(watch.random.uniform(0, 3))  # while it starts
            else:
                watch.moment(0.15)
            assert process.poll() is None
        finally:
            watch.kill(process.pid)
            process.wait()
        watch.verify()
    assert 0 < len(watch.finished()) < len(CELLS)
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    cells = json.loads((tmp_path / "toy-a" / "report.json").read_text())["cells"]
    assert cells["done"] == len(CELLS)
    assert cells["reused"] >= len(watch.seen)
    assert finish(Serial(), watch) == uninterrupted  # computes nothing


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killing_local_workers(store, uninterrupted) -> None:
    watch = Watch(store, seed=1)
    with Local(2) as engine:

        def kill() -> None:
            while watch.kills < KILLS and len(watch.finished()) < len(CELLS) - 20:
                watch.moment(0.1)
                if pids := engine.pids():
                    watch.kill(watch.random.choice(pids))

        killer = Thread(target=kill)
        killer.start()
        assert finish(engine, watch) == uninterrupted
        killer.join()
    assert watch.kills == KILLS


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killing_dask_workers(tmp_path, store, uninterrupted) -> None:
    pytest.importorskip("distributed")
    watch = Watch(store, seed=2)
    cluster = Cluster(tmp_path)
    try:
        workers = [cluster.add_worker() for _ in range(2)]

        def kill() -> None:
            while watch.kills < KILLS and len(watch.finished()) < len(CELLS) - 20:
                watch.moment(0.1)
                place = watch.random.randrange(2)
                watch.kill(workers[place].pid)
                workers[place].wait()
                workers[place] = cluster.add_worker()

        with start_engine("dask", scheduler=cluster.address) as engine:
            killer = Thread(target=kill)
            killer.start()
            assert finish(engine, watch) == uninterrupted
            killer.join()
    finally:
        cluster.close()
    assert watch.kills == KILLS
