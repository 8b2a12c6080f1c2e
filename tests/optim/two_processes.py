"""What each of two processes does in the tests of distributed training."""

import copy
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

import natgrad as ng
from natgrad import Categorical
from natgrad.likelihoods import Reduction
from natgrad.optim import NGD, Factors, Quadratic
from tests.helpers import generator, randn
from tests.optim.nets import mlp, seeded, train

N = 16
X, Y = randn(N, 3, seed=1), torch.randint(0, 3, (N,), generator=generator(2))


def optimizer_of(model: torch.nn.Module, reduction: Reduction, source: str, kind: str = "") -> NGD:
    factors = Factors(source=source, memory=100)  # type: ignore[arg-type]
    criterion = Categorical(reduction=reduction)
    if kind == "learned":
        return NGD(model, criterion, factors=factors, refresh=2)
    return NGD(model, criterion, factors=factors, step_length=Quadratic(rows=2 * N), refresh=2)


def network(kind: str, seed: int = 0) -> torch.nn.Module:
    """A small network; a wider one with a normalization if lengths are learned."""
    if kind != "learned":
        return seeded(lambda: mlp(3, 6, 3), seed=seed)
    wide = seeded(lambda: mlp(3, 40, 40, 40, 3), seed=seed)
    return torch.nn.Sequential(wide[:2], torch.nn.LayerNorm(40, dtype=torch.float64), wide[2:])


def held_bytes(optimizer: NGD) -> int:
    """Bytes of the tensors in the state that this process holds."""

    def count(value: Any) -> int:
        if isinstance(value, torch.Tensor):
            return value.numel() * value.element_size()
        return sum(map(count, value.values())) if isinstance(value, dict) else 0

    return count(optimizer._own_state()["natural"])


def run(folder: Path, rank: int, tasks: list[str]) -> None:
    """Train one half of the data in one process, task after task; save what each ends with."""
    store = distributed.FileStore(str(folder / "store"), 2)
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    for task in tasks:
        reduction, source, kind = task.split("-")
        found = perform(rank, reduction, source, kind)  # type: ignore[arg-type]
        torch.save(found, folder / f"{task}-{rank}.pt")
    distributed.destroy_process_group()


def perform(rank: int, reduction: Reduction, source: str, kind: str) -> dict[str, Any]:
    wrapped = DistributedDataParallel(network(kind))
    optimizer = optimizer_of(wrapped, reduction, source, kind)
    half = slice(0, 6) if rank == 0 else slice(6, N)
    if reduction == "mean":  # gradients are averaged over processes: halves must be equal
        half = slice(rank * N // 2, (rank + 1) * N // 2)
    steps = 14
    if kind in ("resume", "learned"):
        train(optimizer, optimizer.likelihood, X[half], Y[half], 5)
        optimizer.consolidate()
        saved = [optimizer.state_dict() if rank == 0 else None]
        distributed.broadcast_object_list(saved)
        weights = wrapped.module.state_dict()
        optimizer.remove()
        wrapped = DistributedDataParallel(network(kind, seed=9))
        wrapped.module.load_state_dict(weights)
        optimizer = optimizer_of(wrapped, reduction, source, kind)
        optimizer.load_state_dict(saved[0])
        steps -= 5
    if kind == "killed" and rank == 1:
        train(optimizer, optimizer.likelihood, X[half], Y[half], 2)
        os._exit(9)
    train(optimizer, optimizer.likelihood, X[half], Y[half], steps)
    stats = optimizer.statistics
    numbers = [stats.loss, stats.damping, stats.length, stats.predicted]
    held = held_bytes(optimizer)
    refused = ""
    try:
        optimizer.state_dict()
    except ng.errors.InvalidInputError as error:
        refused = str(error)
    if kind == "learned":  # the losses have risen: the step is undone in both processes
        optimizer._lengths._loss = -9.0
        optimizer._lengths._spread = 0.0
        train(optimizer, optimizer.likelihood, X[half], Y[half], 1)
        assert optimizer.statistics.rejected
    before = copy.deepcopy(wrapped.module.state_dict())
    with optimizer.averaged():
        average = copy.deepcopy(wrapped.module.state_dict())
    assert all(torch.equal(p, before[name]) for name, p in wrapped.module.state_dict().items())
    assert held_bytes(optimizer) <= held * 1.01  # what others hold is here only in between
    return {
        "weights": wrapped.module.state_dict(),
        "average": average,
        "numbers": torch.tensor(numbers),
        "names": list(optimizer._own_state()["natural"]["preconditioner"]["layers"]),
        "held": held,
        "refused": refused,
    }


if __name__ == "__main__":
    folder, rank, *tasks = sys.argv[1:]
    torch.set_num_threads(1)
    run(Path(folder), int(rank), tasks)
    os._exit(0)  # torch sometimes aborts while the interpreter ends, without natgrad as well
