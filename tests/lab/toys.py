"""Two toy experiments, and cells that misbehave in every way a sweep must survive.

`python -m tests.lab.toys reproduce toy/a` is natgrad with the toys registered.
"""

import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import Cell, Result
from natgrad.lab.claim import Claim, over_seeds
from natgrad.lab.experiment import Experiment, Sweep
from natgrad.lab.registry import register

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Draw:
    """One matrix to make and reduce."""

    size: int
    seed: int
    pause: float = 0.0
    big: bool = False


def reduce(config: Draw) -> Result:
    """Sums whose last bits depend on the number of threads, in torch and in NumPy."""
    generator = torch.Generator().manual_seed(config.seed)
    a = torch.randn(config.size, config.size, dtype=torch.float64, generator=generator)
    time.sleep(config.pause)
    numpy = a.numpy()
    if config.big:
        return {"all": numpy}
    return {
        "torch": (a @ a).sum(0).numpy(),
        "numpy": np.asarray(numpy.ravel() @ numpy.T.ravel()),
        "singular": np.linalg.svd(numpy, compute_uv=False),
    }


@dataclass(frozen=True)
class Trouble:
    """What goes wrong, and where the cell leaves its traces."""

    kind: str
    folder: str = ""
    seed: int = 0


def misbehave(config: Trouble) -> Result:
    """Fail as the config says; leave a file for each try in the folder."""
    if config.folder:
        Path(config.folder, f"{config.kind}-{config.seed}-{time.time_ns()}").touch()
    if config.kind == "exception":
        raise ZeroDivisionError("one\nover zero")
    if config.kind == "memory":
        raise MemoryError("no more")
    if config.kind == "exit":
        os._exit(3)
    if config.kind == "system exit":
        sys.exit("a cell that calls sys.exit")
    if config.kind == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if config.kind == "killed once" and len(list(Path(config.folder).glob("killed*"))) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.kind == "sleep":
        time.sleep(600)
    if config.kind == "spin":  # deaf to everything but SIGKILL
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while True:
            pass
    if config.kind == "fork":  # a grandchild that keeps every file descriptor
        if os.fork() == 0:
            time.sleep(600)
        os._exit(4)
    if config.kind == "global":  # the global random generators
        drawn = [random.random(), float(np.random.rand()), float(torch.rand(()))]
        return {"y": np.array(drawn)}
    if config.kind == "print":
        print("a cell prints")
    if config.kind == "text":
        return {"y": np.array(["not a number"])}
    if config.kind == "scalar":
        return 3.0  # type: ignore[return-value]
    return {"y": np.asarray(float(config.seed))}


@dataclass(frozen=True, kw_only=True)
class Toy:
    """Config of both toys."""

    size: int = 30
    """Rows and columns."""
    seeds: int = 3
    """Number of seeds."""
    pause: float = 0.0
    """Seconds that each cell sleeps."""
    trouble: str = ""
    """Kind of trouble that one more cell meets."""


def compute(config: Toy, sweep: Sweep) -> Arrays:
    cells = [
        Cell(reduce, Draw(config.size, seed, config.pause), f"seed {seed}")
        for seed in range(config.seeds)
    ]
    if config.trouble:
        cells.append(Cell(misbehave, Trouble(config.trouble), f"trouble: {config.trouble}"))
    results = sweep(cells, "matrices")
    arrays = Arrays(seed=list(range(config.seeds)))
    arrays.add("singular", [r["singular"] for r in results[: config.seeds]], "seed", "index")
    arrays.add("numpy", [r["numpy"] for r in results[: config.seeds]], "seed")
    return arrays


def compute_twice(config: Toy, sweep: Sweep) -> Arrays:
    """Two sweeps, the second over what the first has found."""
    first = compute(config, sweep)
    best = int(np.argmax(first["singular"][:, 0]))
    again = [Cell(reduce, Draw(config.size + k, best, config.pause), f"+{k}") for k in (1, 2)]
    arrays = Arrays(more=[1, 2])
    arrays.add("largest", [r["singular"][0] for r in sweep(again, "the best again")], "more")
    return arrays


def claims(config: Toy, arrays: Arrays) -> Sequence[Claim]:
    values = arrays["singular" if "singular" in arrays else "largest"]
    largest = values[:, 0] if values.ndim == 2 else values
    return [
        Claim(
            id="norm", statement="the largest singular value is near 2√n", source="natgrad",
            relation="within", bound=(1.0 * config.size**0.5, 3.0 * config.size**0.5),
            presets=("smoke", "quick", "paper"), **over_seeds(largest),
        )
    ]  # fmt: skip


def draw(config: Toy, arrays: Arrays) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.subplots()
    axes.plot(arrays["singular" if "singular" in arrays else "largest"].T)
    return figure


PRESETS = {"smoke": Toy(seeds=2), "quick": Toy(), "paper": Toy(size=60, seeds=5)}
MINUTES = {"smoke": 0.01, "quick": 0.01, "paper": 0.02}


def toy(name: str, compute: object) -> Experiment[Toy]:
    return Experiment(
        name=name, title="Singular values of random matrices", source="nowhere",
        presets=PRESETS, minutes=MINUTES, compute=compute, claims=claims, draw=draw,
    )  # type: ignore[arg-type]  # fmt: skip


A = register(toy("toy/a", compute))
B = register(toy("toy/b", compute_twice))

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    # By name: an import statement would put all of natgrad among the sources of these cells.
    sys.exit(import_module("natgrad.cli").main())
