"""The race in parts, one problem each: finished parts are kept, and merged into one result."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from natgrad.errors import InvalidInputError
from natgrad.experiments.race.cells import RACE
from natgrad.experiments.race.config import Race
from natgrad.lab._run import Request, run
from natgrad.lab._store.folder import RunFolder
from natgrad.lab.arrays import Arrays
from natgrad.lab.experiment import Experiment, Preset
from natgrad.lab.sweep import Sweeper


def folder_of(out: Path, problem: str) -> RunFolder:
    """Return the folder of a part."""
    return RunFolder(out / _experiment(problem).folder)


def finished(out: Path, config: Race, problem: str) -> bool:
    """Return whether a part has been run with these options, at whatever revision."""
    folder = folder_of(out, problem)
    try:
        folder.report()
        return folder.config(Race) == config.part(problem)
    except InvalidInputError:
        return False


def run_part(out: Path, preset: Preset, problem: str, sweep: Sweeper) -> None:
    """Run a part, and write its folder: config, report with revision, arrays, picture."""
    config = RACE.presets[preset].part(problem)
    command = ("natgrad", "bench", *_SIZES[preset], "--part", problem)
    run(Request(_experiment(problem), preset, config, command), out, sweep)


_SIZES: Mapping[Preset, tuple[str, ...]] = {
    "paper": ("--full",),
    "smoke": ("--smoke",),
    "quick": (),
}


def _experiment(problem: str) -> Experiment[Race]:
    """Return the race on one problem; its claims need the other problems."""
    return replace(
        RACE,
        name=f"race/{problem}",
        claims=lambda config, arrays: (),
        departures=lambda config, arrays: arrays.coordinates["note"],
    )


def merge(out: Path, preset: Preset, sweep: Sweeper) -> tuple[dict[str, Any], Arrays]:
    """Merge all finished parts, write the folder of the race, and return its report and arrays.

    The claims are judged if no part is missing. The report has the revision, date and seconds of
    each part.

    Raises:
        InvalidInputError: If no part is finished.
    """
    config = RACE.presets[preset]
    found = [name for name in config.problems if finished(out, config, name)]
    if not found:
        raise InvalidInputError(f"no part of the race is finished in {out}.")
    folders = [folder_of(out, name) for name in found]
    arrays = joined([folder.arrays() for folder in folders])
    missing = [name for name in config.problems if name not in found]
    if missing:
        arrays.coordinates["note"].append(f"Parts that have not been run: {', '.join(missing)}.")
        budgets = tuple(config.part(name).budgets[0] for name in found)
        config = replace(config, problems=tuple(found), budgets=budgets)
    whole = replace(RACE, compute=lambda config, sweep: arrays)
    report = run(Request(whole, preset, config, ("natgrad", "bench", *_SIZES[preset])), out, sweep)
    reports = [folder.report() for folder in folders]
    report["parts"] = {
        name: {key: part[key] for key in ("revision", "seconds", "environment", "cells")}
        for name, part in zip(found, reports, strict=True)
    }
    return report, arrays


def joined(parts: Sequence[Arrays]) -> Arrays:
    """Return the arrays of several parts as those of one race.

    Example:
        >>> a, b = Arrays(problem=["x"], note=[]), Arrays(problem=["y"], note=["Slow."])
        >>> a.add("target", [1.0], "problem")
        >>> b.add("target", [2.0], "problem")
        >>> both = joined([a, b])
        >>> both.coordinates["problem"], both["target"], both.coordinates["note"]
        (['x', 'y'], array([1., 2.]), ['Slow.'])
    """
    first = parts[0]
    together = {
        name: [value for part in parts for value in part.coordinates[name]]
        for name in ("problem", "note")
    }
    arrays = Arrays(**(first.coordinates | together))
    for name in first:
        values = np.concatenate([part[name] for part in parts])
        arrays.add(name, values, *first.dims[name])
    return arrays
