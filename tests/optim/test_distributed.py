"""Two processes that hold halves of a batch take the steps of one that holds it all."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from natgrad import NGD, Categorical
from tests.helpers import assert_near
from tests.optim.nets import mlp, seeded, train
from tests.optim.two_processes import X, Y, held_bytes, network, optimizer_of

ROOT = Path(__file__).parents[2]


TASKS = (
    "mean-exact-train", "sum-exact-train", "mean-exact-resume", "mean-sampled-train",
    "mean-exact-learned",
)  # fmt: skip


def launch(folder: Path, *tasks: str) -> list[subprocess.CompletedProcess[str]]:
    """Run both processes through the tasks; return them when they have ended."""
    env = os.environ | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.optim.two_processes", str(folder), str(rank), *tasks],
            cwd=ROOT,
            env=env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    ended = []
    for process in processes:
        out, err = process.communicate(timeout=240)
        ended.append(subprocess.CompletedProcess([], process.returncode, out, err))
    return ended


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """What both processes found in each task; they are started once for all tasks."""
    folder = tmp_path_factory.mktemp("pair")
    for process in launch(folder, *TASKS):
        assert process.returncode == 0, process.stderr
    return {
        task: [torch.load(folder / f"{task}-{rank}.pt", weights_only=True) for rank in range(2)]
        for task in TASKS
    }


@pytest.mark.parametrize(
    ("reduction", "task"), [("mean", "train"), ("sum", "train"), ("mean", "resume")]
)
def test_two_processes_equal_one(found, reduction, task):
    """Also with halves of unequal size, under sum, and over a checkpoint."""
    model = seeded(lambda: mlp(3, 6, 3))
    optimizer = optimizer_of(model, reduction, "exact")
    train(optimizer, optimizer.likelihood, X, Y, 14)
    stats = optimizer.statistics
    numbers = torch.tensor([stats.loss, stats.damping, stats.length, stats.predicted])
    for one in found[f"{reduction}-exact-{task}"]:
        assert one["names"] == ["0", "2"]
        assert_near(one["numbers"], numbers, 1e-6)
        for name, p in model.state_dict().items():
            assert_near(one["weights"][name], p, 1e-6)


def test_two_processes_divide_the_state(found):
    """Learned lengths, over a checkpoint and an undone step; each holds half of the bytes."""
    model = network("learned")
    optimizer = optimizer_of(model, "mean", "exact", "learned")
    train(optimizer, optimizer.likelihood, X, Y, 14)
    stats, whole = optimizer.statistics, held_bytes(optimizer)
    numbers = torch.tensor([stats.loss, stats.damping, stats.length, stats.predicted])
    optimizer._lengths._loss, optimizer._lengths._spread = -9.0, 0.0
    train(optimizer, optimizer.likelihood, X, Y, 1)
    halves = found["mean-exact-learned"]
    for one in halves:
        assert_near(one["numbers"], numbers, 1e-6)
        for name, p in model.state_dict().items():
            assert_near(one["weights"][name], p, 1e-6)
        assert one["held"] < 0.6 * whole
        assert "call consolidate() in every one" in one["refused"]
    with optimizer.averaged():
        for one in halves:
            for name, p in model.state_dict().items():
                assert_near(one["average"][name], p, 1e-6)
    # the normalization's parameters and the generator are held twice
    assert sum(one["held"] for one in halves) < 1.1 * whole


def test_sampled_errors_differ_between_processes_and_steps_do_not(found):
    first, second = found["mean-sampled-train"]
    for name, p in first["weights"].items():
        assert_near(second["weights"][name], p, 1e-13)  # the last bit of local products may differ
    assert torch.equal(first["numbers"], second["numbers"])


@pytest.mark.slow
def test_a_killed_process_ends_the_other(tmp_path):
    left, killed = launch(tmp_path, "mean-exact-killed")
    assert killed.returncode == 9
    assert left.returncode not in (0, 9)
    assert "RuntimeError" in left.stderr


def test_a_model_that_is_not_wrapped_among_several_processes_is_warned_of(monkeypatch):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.warns(UserWarning, match="2 processes run"):
        NGD(mlp(3, 6, 3), Categorical())
