"""`integrate(method="auto")` against every other method at the same measured error.

Errors are those of the hypothesis at the end, against SciPy's DOP853 at 1e-13 on fields written by
hand. Each contestant runs at tolerances from 1e-2 to 1e-11; its time at the error of `auto` is
interpolated between its two runs around it (logarithms of time and error). SciPy's solvers get the
same field that natgrad evaluates. All times are CPU seconds of one thread, the least of up to three
runs.
"""

import itertools
import math
import time

import numpy as np
from flow_problems import PROBLEMS, FlowProblem
from harness import Row, report

import natgrad as ng
from natgrad.parametrizations.base import flatten

TOLERANCES = (1e-3, 1e-6, 1e-9)
ACCURACIES = [10.0**-k for k in range(3, 11)]
CONTESTANTS = ("dopri", "dop853", "lsoda", "radau", "rkc", "pair", "dual")
DENSE = 400  # parameters beyond which dense Jacobians take a hundred times as long as DOP853
SLOW = 4.0  # a contestant that takes so many times as long as `auto` is given up


def timed(problem: FlowProblem, method: str, rtol: float, rounds: int = 3) -> tuple[float, float]:
    """Return CPU seconds and error; infinite if the end was not reached."""
    least = math.inf
    for _ in range(rounds):
        begin = time.process_time()
        error, path = problem.solve(method, rtol, max_evaluations=100_000)
        least = min(least, time.process_time() - begin)
        if path.status != "time reached":
            return math.inf, math.inf
        if least > 0.3:
            break
    return least, error


def curve(problem: FlowProblem, method: str, worst: float) -> list[tuple[float, float]]:
    """Return errors and seconds of a contestant at falling tolerances."""
    out = []
    for rtol in [10.0**-k for k in range(2, 12)]:
        seconds, error = timed(problem, method, rtol, rounds=2)
        out.append((error, seconds))
        if seconds > SLOW * worst:
            break
    return out


def at_error(points: list[tuple[float, float]], error: float) -> float:
    """Return the seconds in which a contestant reaches the error."""
    best = math.inf
    for (e0, s0), (e1, s1) in itertools.pairwise(points):
        if e1 <= error <= e0 and e1 < e0:
            part = math.log(error / e0) / math.log(e1 / e0)
            best = min(best, math.exp((1 - part) * math.log(s0) + part * math.log(s1)))
    return min([best, *(seconds for found, seconds in points if found <= error)])


def compare(name: str) -> list[Row]:
    problem = PROBLEMS[name]()
    mine = {rtol: timed(problem, "auto", rtol) for rtol in TOLERANCES}
    chosen = problem.solve("auto", 1e-6)[1].method.split(";")[0]
    worst = max(seconds for seconds, _ in mine.values())
    curves = {}
    large = flatten(problem.params).numel() > DENSE
    for method in CONTESTANTS:
        if large and method in ("lsoda", "radau"):
            continue
        try:
            curves[method] = curve(problem, method, worst)
        except ng.errors.InvalidInputError:  # a method that does not suit the problem
            continue
    rows = []
    for rtol, (seconds, error) in mine.items():
        others = {m: at_error(points, error) for m, points in curves.items()}
        best = min(others, key=lambda m: others[m])
        ratio = seconds / others[best]
        rows.append(
            Row(
                f"{name}, rtol {rtol:.0e}", ratio, "×", "≤ 1.3", ratio <= 1.3,
                f"auto {1e3 * seconds:.1f} ms, error {error:.0e} ({chosen}); next best "
                f"{best} {1e3 * others[best]:.1f} ms",
            )
        )  # fmt: skip
        print(f"{rows[-1].name:<60} {ratio:6.2f}  {rows[-1].detail}", flush=True)
    return rows


def accuracy(name: str) -> Row:
    """Return the largest error over rtol, from 1e-3 to 1e-10."""
    problem = PROBLEMS[name]()
    ratios = [problem.solve("auto", rtol)[0] / rtol for rtol in ACCURACIES]
    detail = ", ".join(f"{r:.0e}: {q:.1g}" for r, q in zip(ACCURACIES, ratios, strict=True))
    print(f"{name:<60} {max(ratios):6.2g}  {detail}", flush=True)
    return Row(
        f"{name}: error / rtol", float(np.max(ratios)), "", "≤ 10", max(ratios) <= 10, detail
    )


if __name__ == "__main__":
    rows = [accuracy(name) for name in PROBLEMS]
    for name in PROBLEMS:
        rows += compare(name)
    report("integrate: auto against every method at equal error", rows)
