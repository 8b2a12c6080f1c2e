"""What each of two processes does in the tests of distributed training."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from natgrad import Categorical
from natgrad.likelihoods import Reduction
from natgrad.optim import NGD, Factors, Quadratic
from tests.helpers import generator, randn
from tests.optim.nets import mlp, seeded, train

N = 16
X, Y = randn(N, 3, seed=1), torch.randint(0, 3, (N,), generator=generator(2))


def optimizer_of(model: torch.nn.Module, reduction: Reduction, source: str) -> NGD:
    factors = Factors(source=source, memory=100)  # type: ignore[arg-type]
    criterion = Categorical(reduction=reduction)
    return NGD(model, criterion, factors=factors, step_length=Quadratic(rows=2 * N), refresh=2)


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
    wrapped = DistributedDataParallel(seeded(lambda: mlp(3, 6, 3)))
    optimizer = optimizer_of(wrapped, reduction, source)
    half = slice(0, 6) if rank == 0 else slice(6, N)
    if reduction == "mean":  # gradients are averaged over processes: halves must be equal
        half = slice(rank * N // 2, (rank + 1) * N // 2)
    steps = 14
    if kind == "resume":
        train(optimizer, optimizer.likelihood, X[half], Y[half], 5)
        state, weights = optimizer.state_dict(), wrapped.module.state_dict()
        optimizer.remove()
        wrapped = DistributedDataParallel(seeded(lambda: mlp(3, 6, 3), seed=9))
        wrapped.module.load_state_dict(weights)
        optimizer = optimizer_of(wrapped, reduction, source)
        optimizer.load_state_dict(state)
        steps -= 5
    if kind == "killed" and rank == 1:
        train(optimizer, optimizer.likelihood, X[half], Y[half], 2)
        os._exit(9)
    train(optimizer, optimizer.likelihood, X[half], Y[half], steps)
    stats = optimizer.statistics
    return {
        "weights": wrapped.module.state_dict(),
        "numbers": torch.tensor([stats.loss, stats.damping, stats.length, stats.predicted]),
        "names": list(optimizer.state_dict()["natural"]["preconditioner"]["layers"]),
    }


if __name__ == "__main__":
    folder, rank, *tasks = sys.argv[1:]
    torch.set_num_threads(1)
    run(Path(folder), int(rank), tasks)
    os._exit(0)  # torch sometimes aborts while the interpreter ends, without natgrad as well
