"""Matrix completion: cost of a cell by matrix size, the loop that it replaces, a large table.

A cell is one gradient flow from α = 1e-3 to a training error of 1e-6 on a D × D matrix of rank 5
with 20 D observed entries, full width, float32; its test error is checked.
"""

import resource
import sys
import time

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


def _peak() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30


if __name__ == "__main__":
    found = [table(100_000), table(1_000_000), *growth(2), *growth(3)]
    found += [loop(2, 1e-3, 2000), loop(2, 1e-9, 1500), loop(3, 1e-3, 1500), loop(4, 1e-3, 2000)]
    report("Matrix completion", found)
