"""
An experiment of your own, on two machines
==========================================

You have a question that takes many runs. The laboratory computes them in
parallel, stores each result, and continues where it stopped. The same script runs
on one core, on all cores, or on many machines. Here two worker processes on this
computer play the part of two machines.
"""

# %%
# The question: how many samples does depth save? The unit of work is a *cell*: a
# function of a frozen dataclass. Workers import it, so it belongs in a file of
# its own.

import subprocess
import sys
import tempfile
from pathlib import Path

folder = Path(tempfile.mkdtemp())
(folder / "samples.py").write_text("""
from dataclasses import dataclass

import numpy as np
import torch

import natgrad as ng


@dataclass(frozen=True)
class Config:
    depth: int
    samples: int
    seed: int


def accuracy(config):
    generator = torch.Generator().manual_seed(config.seed)
    x = torch.randn(config.samples, 50, dtype=torch.float64, generator=generator)
    truth = torch.zeros(50, dtype=torch.float64)
    truth[:3] = 1
    network = ng.Diagonal(config.depth)
    path = ng.integrate(
        ng.euclidean,
        ng.Bernoulli(),
        network,
        network.init_free(50, scale=0.3),
        (x, torch.sign(x @ truth)),
        until=1e4,
    )
    beta = network.hypothesis(path.final)
    return {"accuracy": ng.diagnostics.gaussian_accuracy(beta, truth).numpy()}
""")
sys.path.insert(0, str(folder))
from samples import Config, accuracy

# %%
# One cell, here and now:

print(accuracy(Config(depth=2, samples=40, seed=0)))

# %%
# Start a Dask scheduler and two workers. On real machines you type the same two
# commands, the second on each of them, with the address of the first in place of
# ``localhost``. Keep the scheduler on a private network: whoever can reach it can
# run code.

import os

environment = os.environ | {"OMP_NUM_THREADS": "1"}
paths = [str(folder), os.environ.get("PYTHONPATH", "")]
environment["PYTHONPATH"] = os.pathsep.join(paths)
quiet = subprocess.DEVNULL


def start(*words):
    command = [sys.executable, "-m", "dask", *words]
    return subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)


address = folder / "scheduler.json"
at_home = ["--host", "127.0.0.1", "--no-dashboard"]
meet = ["--scheduler-file", str(address), *at_home]
scheduler = start("scheduler", "--port", "0", *meet)
worker = ["worker", "--nthreads", "1", "--no-nanny", *meet]
machines = [start(*worker), start(*worker)]

# %%
# The sweep: 3 depths, 5 sample sizes, 2 seeds. Cells run wherever a worker is
# free.

import json
import time

import numpy as np

from natgrad.lab.cell import Cell
from natgrad.lab.engines import start_engine
from natgrad.lab.sweep import Store, Sweeper

depths, sizes, seeds = (1, 2, 3), (20, 40, 80, 120, 160), (0, 1)
cells = [
    Cell(accuracy, Config(depth, samples, seed), f"{depth}, {samples}, {seed}")
    for depth in depths
    for samples in sizes
    for seed in seeds
]
while not address.exists():
    time.sleep(0.1)
host = json.loads(address.read_text())["address"]
with start_engine("dask", scheduler=host) as engine:
    sweep = Sweeper(engine, Store(folder / "store"), timeout=60)
    results = sweep(cells, "accuracy")
print(f"{sweep.done} cells done, {sweep.reused} reused")

for process in (*machines, scheduler):
    process.terminate()
    process.wait()

# %%
# The results arrive in the order of the cells.

import matplotlib.pyplot as plt

values = np.array([float(result["accuracy"]) for result in results])
values = values.reshape(len(depths), len(sizes), len(seeds))
figure, axes = plt.subplots(figsize=(6, 4))
for depth, curve in zip(depths, values.mean(2), strict=True):
    axes.plot(sizes, curve, marker="o", label=f"depth {depth}")
axes.set(
    title="How many samples does depth save?", xlabel="samples", ylabel="accuracy"
)
axes.legend()
plt.show()

# %%
# Run it again, this time without a cluster: nothing is computed, because all
# results are in the store.

with start_engine("serial") as engine:
    again = Sweeper(engine, Store(folder / "store"))
    same = again(cells, "accuracy")
print(f"{again.done} cells done, {again.reused} reused")

# %%
# The pages on the laboratory and on clusters explain figures with claims, SLURM,
# Kubernetes and ssh. The lines below check this page as it is. Delete them when you
# change it.

assert again.reused == len(cells)
assert all(
    float(a["accuracy"]) == float(b["accuracy"])
    for a, b in zip(results, same, strict=True)
)
assert values[2].mean() > values[0].mean() + 0.1
