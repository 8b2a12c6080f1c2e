"""`integrate(method="auto")` against every other method at the same measured error.

Errors are those of the hypothesis at the end, against SciPy's DOP853 at 1e-13 on fields written by
hand (ReLU: event location by hand). Contestants are natgrad's other methods, and SciPy's RK45,
DOP853, LSODA, BDF and Radau on the fields written by hand in NumPy, with the exact Jacobian of
logistic, diagonal and softmax flows. Each runs at falling tolerances until it is as accurate as
`auto`; its time at the error of `auto` is interpolated between the two runs around it (logarithms
of time and error). The fastest then races `auto` again, turn by turn. All times are CPU seconds of
one thread, the least of several runs.

    python benchmarks/bench_integrate.py                 # everything
    python benchmarks/bench_integrate.py tanh ReLU       # what has these words in its name
    python benchmarks/bench_integrate.py --keep FILE     # continue what was interrupted

Accuracy is measured on other data than speed, with seeds from which no tolerance was chosen.
"""

import argparse
import itertools
import json
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from flow_problems import FRESH, PROBLEMS, SEEDS, FlowProblem, TooSlowError, integers_end
from harness import Row, report

import natgrad as ng
from natgrad.data.completion import low_rank
from natgrad.parametrizations.base import flatten

TOLERANCES = (1e-3, 1e-6, 1e-9)
ACCURACIES = [10.0**-k for k in range(3, 11)]
OURS = ("dopri", "dop853", "lsoda", "bdf", "radau", "rkc", "pair", "reduced", "dual", "completion")
SCIPY = ("RK45", "DOP853", "LSODA", "BDF", "Radau")
STIFF = ("lsoda", "bdf", "radau", "LSODA", "BDF", "Radau")
DENSE = 1000  # parameters beyond which a dense Jacobian takes longer than all of `auto`
SLOW = 3.0  # a contestant that takes so many times as long as `auto` is given up
FINEST = 1e-12  # errors below this are those of the reference, and count as this
ROUNDS = 5  # of the last race

Run = Callable[[float], float]
"""From a tolerance to the error at the end; infinite if the end was not reached."""


def timed(run: Run, rtol: float) -> tuple[float, float]:
    """Return error and CPU seconds."""
    begin = time.process_time()
    with np.errstate(all="ignore"):
        error = run(rtol)
    return error, time.process_time() - begin


def ours(problem: FlowProblem, method: str, evaluations: int) -> Run:
    """Return a method of natgrad, which gives up after a number of evaluations."""

    def run(rtol: float) -> float:
        error, path = problem.solve(method, rtol, max_evaluations=evaluations)
        return error if path.status.reached else math.inf

    return run


def scipys(problem: FlowProblem, method: str, seconds: float) -> Run:
    """Return a method of SciPy on the field written by hand, which gives up after CPU seconds."""

    def run(rtol: float) -> float:
        try:
            return problem.error(problem.by_scipy(method, rtol, seconds=seconds))
        except TooSlowError:
            return math.inf

    return run


def contestants(problem: FlowProblem, slow: float, evaluations: int) -> dict[str, Run]:
    """Return all methods that can solve the problem."""
    large = flatten(problem.params).numel() > DENSE
    found: dict[str, Run] = {}
    for name in OURS:
        if large and name in STIFF:
            continue
        try:
            problem.solve(name, 1e-3, max_evaluations=1)
        except ng.errors.InvalidInputError:  # a method that does not suit the problem
            continue
        found[name] = ours(problem, name, evaluations)
    for name in SCIPY:
        if not (large and name in STIFF):
            found[f"SciPy {name}"] = scipys(problem, name, slow)
    return found


def curve(run: Run, least: float, slow: float) -> dict[float, tuple[float, float]]:
    """Return error and seconds by tolerance, until one is as accurate as `auto` or too slow."""
    out = {}
    for rtol in [10.0**-k for k in range(2, 13)]:
        out[rtol] = timed(run, rtol)
        error, seconds = out[rtol]
        if error <= least or seconds > slow:
            break
    return out


def at_error(points: dict[float, tuple[float, float]], goal: float) -> tuple[float, list[float]]:
    """Return the seconds in which a contestant reaches an error, and the tolerances used."""
    best, used = math.inf, []
    for rtol, (error, seconds) in points.items():
        if error <= goal and seconds < best:
            best, used = seconds, [rtol]
    for (r0, (e0, s0)), (r1, (e1, s1)) in itertools.pairwise(points.items()):
        if e1 <= goal <= e0 < math.inf and e1 < e0:
            part = math.log(goal / e0) / math.log(max(e1, 1e-300) / e0)
            between = math.exp((1 - part) * math.log(s0) + part * math.log(s1))
            if between < best:
                best, used = between, [r0, r1]
    return best, used


def compare(name: str) -> list[Row]:
    """Return the CPU time of `auto` over that of the fastest contestant, by tolerance."""
    problem = PROBLEMS[name](0)
    auto = ours(problem, "auto", 10**6)
    auto(1e-3)  # warm
    mine = {rtol: min(timed(auto, rtol) for _ in range(2)) for rtol in TOLERANCES}
    paths = {rtol: problem.solve("auto", rtol)[1] for rtol in TOLERANCES}
    chosen = {rtol: path.method.split(";")[0] for rtol, path in paths.items()}
    most = max(path.evaluations for path in paths.values())
    slow = SLOW * max(seconds for _, seconds in mine.values())
    mine = {rtol: (max(error, FINEST), seconds) for rtol, (error, seconds) in mine.items()}
    least = min(error for error, _ in mine.values())
    runs = contestants(problem, slow, 5 * most + 2000)
    curves = {method: curve(run, least, slow) for method, run in runs.items()}
    rows = []
    for rtol, (error, seconds) in mine.items():
        itself = chosen[rtol].split(",")[0].split(" ")[0]
        found = {m: at_error(points, error) for m, points in curves.items() if m != itself}
        best = min(found, key=lambda m: found[m][0])
        used, points = found[best][1], dict(curves[best])
        rounds = max(2, min(ROUNDS, int(1 / max(seconds, 1e-3))))
        for _ in range(rounds if used else 0):  # turn by turn, the least of all
            seconds = min(seconds, timed(auto, rtol)[1])
            for r in used:
                points[r] = (points[r][0], min(points[r][1], timed(runs[best], r)[1]))
        # If nobody was as accurate in the time allowed, the ratio is at most this.
        rival = at_error({r: points[r] for r in used}, error)[0] if used else slow
        ratio = seconds / rival
        detail = f"auto {1e3 * seconds:.1f} ms, error {error:.0e} ({chosen[rtol]}); "
        detail += (
            f"next best {best} {1e3 * rival:.1f} ms"
            if used
            else f"nobody else in {1e3 * slow:.0f} ms"
        )
        rows.append(Row(f"{name}, rtol {rtol:.0e}", ratio, "×", "≤ 1.3", ratio <= 1.3, detail))
        print(f"{rows[-1].name:<60} {ratio:6.2f}  {detail}", flush=True)
    return rows


def accuracy(name: str) -> list[Row]:
    """Return the largest error over rtol, from 1e-3 to 1e-10, on fresh data."""
    worst: dict[float, float] = {}
    for seed in SEEDS:
        problem = FRESH[name](seed)
        for rtol in ACCURACIES:
            error, path = problem.solve("auto", rtol)
            error = error if path.status.reached else math.inf
            worst[rtol] = max(worst.get(rtol, 0.0), error / rtol)
    value = max(worst.values())
    detail = ", ".join(f"{r:.0e}: {q:.1g}" for r, q in worst.items())
    print(f"{name + ': error / rtol':<60} {value:6.2g}  {detail}", flush=True)
    return [Row(f"{name}: error / rtol, seeds {SEEDS}", value, "", "≤ 10", value <= 10, detail)]


def natural_integers() -> list[Row]:
    """Return how many natural flows of small-integer data end where they must."""
    sets = range(10_000, 10_200)
    kinds = Counter(integers_end(seed) for seed in sets)
    failed = kinds.pop("", 0)
    ended = len(sets) - failed
    detail = f"seeds {sets[0]}…{sets[-1]}: " + ", ".join(f"{n} {k}" for k, n in kinds.items())
    print(f"natural flows of small integers: {ended} of {len(sets)}", flush=True)
    return [
        Row(
            "natural flows of 200 small-integer sets that end",
            ended,
            "",
            "200",
            ended == 200,
            detail,
        )
    ]


def natural_completion() -> list[Row]:
    """Return the CPU time of `auto` over that of "line" on natural completion, and distances."""
    rows = []
    for size, depth, rtol in itertools.product((20, 40), (2, 3), (1e-3, 1e-6)):
        problem = low_rank(shape=(size, size), rank=2, observed=size * size // 3, seed=0)
        product, source = ng.MatrixProduct(depth), torch.Generator().manual_seed(1)
        start = product.init_gaussian((size, size), scale=0.1, generator=source)
        batch, before = (problem.positions, problem.values), product.hypothesis(start)
        goal = torch.where(problem.observed, problem.truth, before)
        exact = goal + math.exp(-5) * (before - goal)
        options = {"until": 5.0, "times": torch.tensor([5.0])}
        args = (ng.natural, ng.Gaussian(reduction="sum"), product, start, batch)
        ends, seconds, off = {}, {}, {}
        for method in ("auto", "line"):
            begin = time.process_time()
            final = ng.integrate(*args, method=method, rtol=rtol, **options).final
            seconds[method] = time.process_time() - begin
            ends[method] = flatten(final)
            off[method] = float((product.hypothesis(final) - exact).norm() / exact.norm())
        apart = float((ends["line"] - ends["auto"]).norm() / ends["auto"].norm())
        ratio = seconds["auto"] / seconds["line"]
        name = f"natural completion {size} × {size}, L = {depth}, rtol {rtol:.0e}: auto / line"
        detail = f"errors of β {off['auto']:.0e} and {off['line']:.0e}, factors {apart:.0%} apart"
        rows.append(Row(name, ratio, "×", "", None, detail))
        print(f"{name:<68} {ratio:6.1f}  {detail}", flush=True)
    return rows


def parts() -> dict[str, Callable[[], list[Row]]]:
    """Return everything to measure, by name."""
    out: dict[str, Callable[[], list[Row]]] = {}
    for name in PROBLEMS:
        out[name] = lambda name=name: compare(name)
    for name in FRESH:
        out[f"{name}: accuracy"] = lambda name=name: accuracy(name)
    out["integers"] = natural_integers
    out["natural completion"] = natural_completion
    return out


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, add_help=False)
    parser.add_argument("words", nargs="*", help="words in the names of what to measure")
    parser.add_argument("--keep", type=Path, help="file of rows already measured")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    kept = json.loads(asked.keep.read_text()) if asked.keep and asked.keep.exists() else {}
    begun = time.process_time()
    for name, measure in parts().items():
        if name in kept or (asked.words and not any(word in name for word in asked.words)):
            continue
        kept[name] = [asdict(row) for row in measure()]
        if asked.keep:
            asked.keep.write_text(json.dumps(kept, indent=1))
    print(f"{time.process_time() - begun:.0f} CPU s")
    report(
        "integrate: auto against every method at equal error",
        [Row(**row) for rows in kept.values() for row in rows],
    )
