"""Ratios from one run: answers are checked first, then methods are timed in turn."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

# One thread, because on a shared machine more threads measure other processes.
torch.set_num_threads(1)


@dataclass
class Row:
    """One measured ratio: `slow` seconds over `fast` seconds, or a single quantity."""

    name: str
    value: float
    unit: str
    target: str
    met: bool | None
    detail: str = ""


def interleaved(*calls: Callable[[], object], seconds: float = 2.0, rounds: int = 0) -> list[float]:
    """Return the median time of each call, run in turn until the time is up.

    With `rounds`, run exactly that many without warm-up, for calls that take seconds.
    """
    for call in calls if not rounds else ():
        call()
    times: list[list[float]] = [[] for _ in calls]
    stop = time.perf_counter() + seconds
    while len(times[0]) < rounds or (
        not rounds and (time.perf_counter() < stop or len(times[0]) < 3)
    ):
        for call, spent in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            spent.append(time.perf_counter() - start)
    return [statistics.median(spent) for spent in times]


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Return the least-squares slope of log seconds against log size."""
    x = torch.tensor(sizes, dtype=torch.float64).log()
    y = torch.tensor(seconds, dtype=torch.float64).log()
    x, y = x - x.mean(), y - y.mean()
    return float((x @ y) / (x @ x))


def show(rows: list[Row]) -> None:
    """Print the rows."""
    for row in rows:
        verdict = "" if row.met is None else ("  met" if row.met else "  MISSED")
        print(f"  {row.name:<58} {row.value:>9.3g} {row.unit:<6} {row.target}{verdict}", flush=True)
        if row.detail:
            print(f"      {row.detail}", flush=True)


def report(title: str, rows: list[Row]) -> None:
    """Print the rows, and write them to the file given by --json."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_known_args()[0]  # scripts may have options of their own
    print(f"{title} (torch {torch.__version__}, {torch.get_num_threads()} threads)")
    show(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=2))
