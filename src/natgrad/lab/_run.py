"""One figure from config to files: compute, judge, draw, save."""

import dataclasses
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from natgrad.lab import figures
from natgrad.lab._environment import environment, revision
from natgrad.lab._store.folder import RunFolder
from natgrad.lab.experiment import Experiment
from natgrad.lab.failures import CellsFailedError
from natgrad.lab.sweep import Sweeper


@dataclass(frozen=True)
class Request:
    """What to compute: an experiment, and the config made from one of its presets.

    Attributes:
        experiment: The figure.
        preset: The preset that `config` was made from.
        config: The preset's config, possibly with changed fields.
        command: The command as typed; empty for `natgrad reproduce`.
    """

    experiment: Experiment[Any]
    preset: str
    config: Any
    command: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """Return the fields that differ from the preset."""
        plain: Any = self.experiment.presets[self.preset]  # type: ignore[index]
        names = (field.name for field in dataclasses.fields(plain))
        return {
            name: getattr(self.config, name)
            for name in names
            if getattr(self.config, name) != getattr(plain, name)
        }


def run(request: Request, out: Path, sweep: Sweeper) -> dict[str, Any]:
    """Compute a figure, write its files below `out`, and return its report.

    Claims are judged only at an unchanged preset: their bounds were chosen for its sizes.

    Raises:
        CellsFailedError: If cells failed; `failures.json` is then written beside the older result.
    """
    experiment, config = request.experiment, request.config
    folder = RunFolder(out / experiment.folder)
    started = time.perf_counter()
    try:
        arrays = experiment.compute(config, sweep)
    except CellsFailedError as error:
        folder.write_failures([failure.to_json() for failure in error.failures])
        raise
    claims = experiment.claims(config, arrays)
    judged_at = "" if request.options else request.preset
    report = {
        "figure": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "story": experiment.tell(config, arrays) if experiment.tell else experiment.story,
        "preset": request.preset,
        "options": request.options,
        "command": list(request.command),
        "seconds": time.perf_counter() - started,
        "seeds": getattr(config, "seeds", None),
        "claims": [claim.to_json(judged_at) for claim in claims],
        "departures": list(experiment.departures(config, arrays)),
        "environment": environment() | {"threads": 1},  # as in every engine's workers
        "table": experiment.table(config, arrays) if experiment.table else None,
        "revision": revision(),
        "cells": {"done": sweep.done, "reused": sweep.reused},
    }
    with figures.style():
        pictures = figures.render(experiment.draw(config, arrays))
    folder.write(config=config, report=report, arrays=arrays, pictures=pictures)
    return folder.report()


def draw(experiment: Experiment[Any], path: Path) -> tuple[Path, ...]:
    """Draw the figure of a run's folder again from its saved arrays; return the files.

    Raises:
        InvalidInputError: If the folder has no arrays or no config, or they do not fit.
    """
    folder = RunFolder(path)
    config = folder.config(type(experiment.presets["quick"]))
    arrays = folder.arrays()
    with figures.style():
        return figures.save(experiment.draw(config, arrays), path)


def unexpected(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the claims of a report whose verdict is not the expected one."""
    return [claim for claim in report["claims"] if claim["holds"] not in (None, claim["expected"])]
