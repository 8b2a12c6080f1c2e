"""A real scheduler and real workers, each a process of its own."""

import inspect
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from natgrad.lab._store.store import Store, identify
from natgrad.lab.cell import Cell
from natgrad.lab.engines import Engine, Job, Outcome, Serial, start_engine
from natgrad.lab.failures import CellsFailedError, SchedulerError
from natgrad.lab.sweep import Sweeper
from tests.lab.conftest import ROOT, Cluster, until
from tests.lab.toys import Draw, Trouble, misbehave, reduce

distributed = pytest.importorskip("distributed")
import psutil  # noqa: E402  (distributed needs it)
from distributed.comm import CommClosedError  # noqa: E402

from natgrad.lab.engines._dask import Dask, _translate  # noqa: E402

MATRICES = [Cell(reduce, Draw(60, seed), f"seed {seed}") for seed in range(12)]


@pytest.fixture(scope="module")
def engine(cluster: Cluster) -> Iterator[Dask]:
    with start_engine("dask", scheduler=cluster.address) as made:
        assert isinstance(made, Dask)
        until(lambda: made.workers == 2)
        yield made


def bits(results: list) -> list[bytes]:  # type: ignore[type-arg]
    return [r[name].tobytes() for r in results for name in sorted(r)]


def test_results_are_those_of_every_other_engine(engine, store, tmp_path) -> None:
    sweep = Sweeper(engine, store)
    assert bits(sweep(MATRICES)) == bits(Sweeper(Serial(), Store(tmp_path / "serial"))(MATRICES))
    assert (sweep.done, sweep.reused) == (12, 0)
    again = Sweeper(engine, store)
    again(MATRICES)
    assert again.reused == 12


def test_failing_cells_leave_the_cluster_well(engine, store, tmp_path) -> None:
    kinds = ["fine", "exit", "killed", "spin", "exception", "fine", "fork"]
    made = [Cell(misbehave, Trouble(k, str(tmp_path), i), k) for i, k in enumerate(kinds)]
    with pytest.raises(CellsFailedError) as caught:
        Sweeper(engine, store, timeout=3)(made)
    found = {f.label: (f.kind, f.attempts) for f in caught.value.failures}
    assert found == {
        "exit": ("killed", 2), "killed": ("killed", 2), "fork": ("killed", 2),
        "spin": ("timeout", 1), "exception": ("exception", 1),
    }  # fmt: skip
    assert engine.workers == 2
    assert len(Sweeper(engine, store)(MATRICES)) == 12


def test_workers_that_do_not_share_the_store_send_their_results(engine, store) -> None:
    class Elsewhere(Engine):
        name, workers = "elsewhere", 2
        cancel, close = engine.cancel, engine.close

        def submit(self, job: Job, timeout: float | None = None) -> "Future[Outcome]":
            future: Future[Outcome] = engine.submit(replace(job, mark="/nowhere"), timeout)
            return future

    assert len(Sweeper(Elsewhere(), store)(MATRICES[:3])) == 3
    assert all(store.get(identify(cell).key) for cell in MATRICES[:3])


def running(folder: Path) -> list[Path]:
    return list(folder.glob("sleep-*"))


def test_cancelled_cells_end_on_the_workers(engine, cluster, store, tmp_path) -> None:
    pids = tmp_path / "pids"
    pids.mkdir()
    with store.opened() as mark:
        made = [Cell(misbehave, Trouble("sleep", str(tmp_path), seed)) for seed in range(6)]
        futures = [engine.submit(Job(cell, identify(cell), mark)) for cell in made]
        until(lambda: len(running(tmp_path)) == 2)
        engine.cancel(futures)
        until(lambda: all(future.cancelled() for future in futures))
        # Both workers are free for other cells at once, though these would sleep for minutes.
        fine = [Cell(misbehave, Trouble("fine", seed=seed)) for seed in range(4)]
        after = [engine.submit(Job(cell, identify(cell), mark)) for cell in fine]
        assert [future.result(timeout=60).kind for future in after] == ["done"] * 4
    assert len(running(tmp_path)) == 2


CLIENT = """
import sys
from natgrad.lab.cell import Cell
from natgrad.lab.engines import start_engine
from natgrad.lab._store.store import Store
from natgrad.lab.sweep import Sweeper
from tests.lab.toys import Trouble, misbehave

address, folder = sys.argv[1:]
with start_engine("dask", scheduler=address) as engine:
    Sweeper(engine, Store(folder + "/store"))(
        [Cell(misbehave, Trouble("sleep", folder, seed)) for seed in range(6)]
    )
"""


def test_cells_of_a_killed_client_end_on_the_workers(engine, cluster, store, tmp_path) -> None:
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, cluster.address, str(tmp_path)], cwd=ROOT
    )
    try:
        until(lambda: len(running(tmp_path)) == 2)
    finally:
        client.kill()
        client.wait()
    assert len(Sweeper(engine, store)(MATRICES)) == 12
    assert len(running(tmp_path)) == 2


def test_a_cluster_started_here_listens_on_loopback_only(store) -> None:
    """Anyone who can reach a port of Dask can read data, and often run any code."""
    before = family_listens()  # workers of other tests among it
    with start_engine("dask", workers=1) as engine:
        Sweeper(engine, store)(MATRICES[:1])
        found = family_listens() - before
    assert {ip for ip, _ in found} <= {"127.0.0.1", "::1"}
    assert found  # the test sees sockets: those of the two HTTP servers


def family_listens() -> set[tuple[str, int]]:
    """Return where this process and its children take connections."""
    own = psutil.Process()
    family = [own, *own.children(recursive=True)]
    return {place for process in family for place in listening(process)}


def listening(process: psutil.Process) -> list[tuple[str, int]]:
    """Return where a process takes connections, or packets."""
    with suppress(psutil.NoSuchProcess):  # it has ended in the meantime
        return [
            (str(found.laddr.ip), int(found.laddr.port))
            for found in process.net_connections(kind="inet")
            if found.status == psutil.CONN_LISTEN or found.type == socket.SOCK_DGRAM
        ]
    return []


def test_a_scheduler_that_is_not_there_is_reported_soon() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(SchedulerError, match=f"there is no Dask scheduler at {address}"):
            start_engine("dask", scheduler=address)


def test_something_that_listens_and_says_nothing_is_no_scheduler() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(SchedulerError, match="there is no Dask scheduler at"):
            start_engine("dask", scheduler=address)


@pytest.mark.parametrize("address", ["nonsense", "carrier-pigeon://host:1", "tls://127.0.0.1:9"])
def test_addresses_that_make_no_sense_are_reported_in_one_sentence(address) -> None:
    with pytest.raises(SchedulerError, match="there is no Dask scheduler at") as caught:
        start_engine("dask", scheduler=address)
    assert "\n" not in str(caught.value)


def test_a_worker_is_no_scheduler(engine) -> None:
    address = next(iter(engine._client.scheduler_info()["workers"]))
    with pytest.raises(SchedulerError, match=f"at {address} there is a Dask worker"):
        start_engine("dask", scheduler=address)


@pytest.mark.parametrize(
    ("error", "cancelled", "message"),
    [
        (distributed.CancelledError("reason"), True, "connection to the Dask scheduler is lost"),
        (CommClosedError("gone"), False, "connection to the Dask scheduler is lost"),
        (ModuleNotFoundError("no natgrad"), False, "cannot run cells: ModuleNotFoundError: no nat"),
    ],
)
def test_what_dask_says_of_itself_stops_the_sweep(error, cancelled, message) -> None:
    class Inner:
        def result(self) -> None:
            raise error

        def cancelled(self) -> bool:
            return bool(cancelled)

    outer: Future[Outcome] = Future()
    _translate(Inner(), outer)
    with pytest.raises(SchedulerError, match=message):
        outer.result()


@pytest.mark.slow
def test_a_scheduler_that_goes_away_stops_the_sweep(tmp_path) -> None:
    own = Cluster(tmp_path)
    try:
        own.add_worker()
        with start_engine("dask", scheduler=own.address) as engine:
            made = [
                Cell(misbehave, Trouble("fine" if seed < 3 else "sleep", str(tmp_path), seed))
                for seed in range(6)
            ]
            stop = threading.Thread(target=_kill_when_running, args=(own, tmp_path))
            stop.start()
            with pytest.raises(SchedulerError, match="connection to the Dask scheduler is lost"):
                Sweeper(engine, Store(tmp_path / "store"))(made)
            stop.join()
            with pytest.raises(SchedulerError):  # and the next one does not begin
                Sweeper(engine, Store(tmp_path / "store"))(made)
        store = Store(tmp_path / "store")
        assert all(store.get(identify(cell).key) for cell in made[:3])
    finally:
        own.close()


def _kill_when_running(cluster: Cluster, folder: Path) -> None:
    until(lambda: running(folder))
    os.kill(cluster.scheduler.pid, signal.SIGKILL)


def test_outcomes_pass_through_dask(engine, store) -> None:
    with store.opened() as mark:
        cell = Cell(misbehave, Trouble("memory"))
        outcome = engine.submit(Job(cell, identify(cell), mark)).result()
    assert isinstance(outcome, Outcome)
    assert outcome.kind == "memory"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A key and a self-signed certificate, which is then its own authority."""
    key, made = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
         "/CN=natgrad", "-keyout", str(key), "-out", str(made)],
        check=True, capture_output=True,
    )  # fmt: skip
    return key, made


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
def test_a_cluster_behind_tls(tmp_path, store, monkeypatch) -> None:
    key, made = certificate(tmp_path)
    options = ["--tls-ca-file", str(made), "--tls-cert", str(made), "--tls-key", str(key)]
    own = Cluster(tmp_path, "--protocol", "tls", *options)
    try:
        own.add_worker()
        address = own.address
        assert address.startswith("tls://")
        with pytest.raises(SchedulerError):  # a client without a certificate is refused
            start_engine("dask", scheduler=address)
        import dask

        settings = {
            "distributed.comm.tls.ca-file": str(made),
            "distributed.comm.tls.client.cert": str(made),
            "distributed.comm.tls.client.key": str(key),
        }
        with dask.config.set(settings), start_engine("dask", scheduler=address) as engine:
            assert len(Sweeper(engine, store)(MATRICES[:2])) == 2
    finally:
        own.close()


@pytest.mark.slow
def test_the_example_of_the_documentation(cluster, tmp_path) -> None:
    page = (ROOT / "docs" / "clusters.md").read_text()
    (code,) = re.findall(r"```python\n(# study.py.*?)```", page, re.S)
    (tmp_path / "study.py").write_text(code)
    promised = re.findall(r"`(2470\.0 20 \d+)`", page)
    for line in promised:
        command = [sys.executable, "study.py", cluster.address]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.stdout == f"{line}\n", done.stderr
    assert len(promised) == 2


def test_the_deployers_of_the_documentation(monkeypatch, capsys) -> None:
    """Run their snippets without clusters: of Dask's own class the arguments are checked."""
    import dask.distributed

    real = inspect.signature(dask.distributed.SSHCluster)

    class Deployed:
        scheduler_address = "tcp://here:8786"

        def __init__(self, *given: Any, **options: Any) -> None:
            pass

        def scale(self, jobs: int) -> None:
            pass

    def over_ssh(*given: Any, **options: Any) -> Deployed:
        real.bind(*given, **options)
        return Deployed()

    monkeypatch.setattr(dask.distributed, "SSHCluster", over_ssh)
    fake = SimpleNamespace(SLURMCluster=Deployed, KubeCluster=Deployed)
    for name in ("dask_jobqueue", "dask_kubernetes", "dask_kubernetes.operator"):
        monkeypatch.setitem(sys.modules, name, fake)
    page = (ROOT / "docs" / "clusters.md").read_text()
    snippets = re.findall(r"```python\n(?!# study.py)(.*?)```", page, re.S)
    for code in snippets:
        exec(code, {})
    assert capsys.readouterr().out.split() == [Deployed.scheduler_address] * len(snippets)
    assert len(snippets) == 3
