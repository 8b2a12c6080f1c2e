"""Engines and a Dask cluster, started once for many tests."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from natgrad.lab._store.store import Store
from natgrad.lab.engines import Engine, start_engine

ROOT = Path(__file__).parents[2]


def until(condition: Callable[[], object]) -> None:
    """Wait for something that must happen, sooner or later as the machine is idle or busy."""
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def local() -> Iterator[Engine]:
    with start_engine("local", workers=2) as engine:
        yield engine


class Cluster:
    """A scheduler and workers, each a process of its own, on loopback."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self._processes: list[subprocess.Popen[bytes]] = []
        self.file = folder / "scheduler.json"
        self.scheduler = self._start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard",
            "--dashboard-address", "127.0.0.1:0",
            "--scheduler-file", str(self.file), *options,
        )  # fmt: skip

    @property
    def address(self) -> str:
        while True:
            try:
                return str(json.loads(self.file.read_text())["address"])
            except (OSError, ValueError):
                assert self.scheduler.poll() is None
                time.sleep(0.05)

    def add_worker(self) -> "subprocess.Popen[bytes]":
        return self._start(
            "worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard",
            "--host", "127.0.0.1", "--local-directory", str(self.folder), *self.options,
        )  # fmt: skip

    def _start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        with open(self.folder / "log", "ab") as log:
            command = [sys.executable, "-m", "dask", *arguments]
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, cwd="/"))
        return self._processes[-1]

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    pytest.importorskip("distributed")
    made = Cluster(tmp_path_factory.mktemp("dask"))
    try:
        made.add_worker()
        made.add_worker()
        yield made
    finally:
        made.close()
