"""Matrix completion: cost of a cell by matrix size, the loop that it replaces, a large table.

A cell is one gradient flow from α = 1e-3 to a training error of 1e-6 on a D × D matrix of rank 5
with 20 D observed entries, full width, float32; its test error is checked.

MovieLens-100k is not part of this repository. Its ratings are in the wheel of recbole 1.2.1; give
the path of `ml-100k.inter` as the only argument to measure them alone.
"""

import resource
import sys
import time
from pathlib import Path

import numpy as np
import torch
from harness import Row, exponent, report

import natgrad as ng
from natgrad.data.completion import low_rank
from natgrad.experiments.complete import complete
from natgrad.experiments.kmh21._completion.cells import EuclideanConfig, Task
from natgrad.experiments.kmh21.fig5._further import RaceConfig, race
from natgrad.flows import Status
from natgrad.flows._methods.completion.flow import completion_flow

SIZES = (100, 300, 1000)


def cell(size: int, depth: int) -> tuple[float, int, float, bool]:
    """Return seconds, gradients and test error of one cell, and whether its entries fitted."""
    problem = low_rank(shape=(size, size), rank=5, observed=20 * size, seed=0)
    product = ng.MatrixProduct(depth)
    factors = product.init_gaussian(
        (size, size), generator=torch.Generator().manual_seed(1), dtype=torch.float32
    )
    flow = completion_flow(factors, problem.positions, problem.values.float())
    error = problem.test_error(product.hypothesis(flow.final))
    return flow.seconds, flow.evaluations, error, flow.status == Status.CONVERGED


def growth(depth: int) -> list[Row]:
    cell(50, depth)  # warm
    rows, seconds, each = [], [], []
    for size in SIZES:
        spent, evaluations, error, fits = cell(size, depth)
        seconds.append(spent)
        each.append(spent / evaluations)
        rows.append(
            Row(
                f"L = {depth}, D = {size}: seconds of a cell",
                spent,
                "s",
                "",
                fits,
                f"{evaluations} evaluations of {1e3 * spent / evaluations:.2f} ms; "
                f"test error {error:.1e}",
            )
        )
    name = f"L = {depth}: growth exponent in D of a cell"
    detail = f"of one evaluation {exponent(list(SIZES), each):.2f}"
    return [*rows, Row(name, exponent(list(SIZES), seconds), "", "", None, detail)]


def loop(depth: int, scale: float, observed: int) -> Row:
    task = Task(size=100, rank=5, observed=observed, seed=0)
    found = race(RaceConfig(cell=EuclideanConfig(task=task, depth=depth, scale=scale)))
    ratio = float(found["loop_seconds"] / found["flow_seconds"])
    return Row(
        f"100×100, L = {depth}, α = {scale:g}, N = {observed}: autograd loop / flow",
        ratio,
        "×",
        "",
        bool(found["agree"]),
        f"loop {float(found['loop_seconds']):.2f} s, {int(found['steps'])} steps; flow "
        f"{float(found['flow_seconds']):.2f} s, {int(found['evaluations'])} evaluations; test "
        f"error {float(found['loop_test']):.1e} and {float(found['flow_test']):.1e}",
    )


def table(observed: int) -> Row:
    """Complete a 2000 × 2000 table with noise; memory is the growth of this process's peak."""
    size = 2000
    problem = low_rank(shape=(size, size), rank=8, observed=observed, seed=0)
    noise = torch.randn(observed, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows, columns = problem.positions.T.tolist()
    values = (problem.values + 0.1 * noise).tolist()
    before, began = _peak(), time.perf_counter()
    found = complete(rows, columns, values, depths=(2, 3), scales=(1e-3,), ranks=(8,))
    seconds = time.perf_counter() - began
    error = problem.test_error(torch.from_numpy(found.matrix)) ** 0.5
    return Row(
        f"complete, 2000×2000, {observed} entries, noise 0.1",
        seconds,
        "s",
        "",
        error < 0.1,
        f"error {error:.3f} against the truth; memory grew by {_peak() - before:.2f} GiB",
    )


def million() -> Row:
    """Complete a million noisy entries of a 6000 × 4000 matrix of rank 10 with default settings."""
    generator = torch.Generator().manual_seed(0)
    rows, columns, many, noise = 6000, 4000, 1_000_000, 0.5
    a, b = (torch.randn(n, 10, generator=generator) for n in (rows, columns))
    flat = torch.randperm(rows * columns, generator=generator)[:many]
    truth = a @ b.mT / 10**0.5
    values = truth.flatten()[flat] + noise * torch.randn(many, generator=generator)
    before, began = time.process_time(), time.perf_counter()
    found = complete((flat // columns).tolist(), (flat % columns).tolist(), values.tolist())
    spent, waited = time.process_time() - before, time.perf_counter() - began
    unseen = torch.ones(rows * columns, dtype=torch.bool)
    unseen[flat] = False
    gap = (torch.from_numpy(found.matrix) - truth).flatten()[unseen]
    error, peak = float(gap.square().mean().sqrt()), _peak()
    return Row(
        "complete, 6000×4000, 1 000 000 entries, rank 10, noise 0.5: CPU seconds",
        spent,
        "s",
        "≤ 300",
        spent <= 300 and peak <= 4 and error < 0.25,
        f"{waited:.0f} s by the clock; peak {peak:.2f} GiB (bound 4); error {error:.3f} against "
        f"the truth, {found.test_error['deep product']:.4f} on test entries",
    )


def movielens(path: Path) -> list[Row]:
    """Five folds of 80/20 of the ratings in an `.inter` file (user, item, rating, time)."""
    data = np.loadtxt(path, skiprows=1, usecols=(0, 1, 2))
    parts = np.array_split(np.random.default_rng(0).permutation(len(data)), 5)
    errors, spent = [], []
    for k, part in enumerate(parts):
        rest = np.concatenate([*parts[:k], *parts[k + 1 :]])
        began = time.process_time()
        found = complete(*(data[rest].T), test=tuple(data[part].T))
        spent.append(time.process_time() - began)
        errors.append(found.test_error)
    rows = []
    for name in errors[0]:
        mean = float(np.mean([error[name] for error in errors]))
        bound = ("≤ 0.912", mean <= 0.912) if name == "deep product" else ("", None)
        detail = f"{np.mean(spent):.0f} CPU s per fold" if bound[0] else ""
        rows.append(Row(f"MovieLens-100k, five folds: RMSE of {name}", mean, "", *bound, detail))
    return rows


def _peak() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


if __name__ == "__main__":
    if sys.argv[1:]:
        report("MovieLens-100k", movielens(Path(sys.argv[1])))
        sys.exit()
    found = [million(), table(100_000), table(1_000_000), *growth(2), *growth(3)]
    found += [loop(2, 1e-3, 2000), loop(2, 1e-9, 1500), loop(3, 1e-3, 1500), loop(4, 1e-3, 2000)]
    report("Matrix completion", found)
