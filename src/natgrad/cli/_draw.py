"""natgrad draw."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from natgrad.cli._common.options import from_words
from natgrad.lab.experiment import Experiment
from natgrad.lab.registry import experiment


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return from_words(draw, prog="natgrad draw", args=arguments)


def draw(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
) -> int:
    """Draw a figure again from its saved arrays, computing nothing.

    Args:
        folder: The folder of one figure, such as runs/kmh21-fig4.
    """
    from natgrad.lab import _run as run
    from natgrad.lab._store.folder import RunFolder

    for path in run.draw(_experiment(RunFolder(folder).report()["figure"]), folder):
        print(path)
    return 0


def _experiment(name: str) -> Experiment[Any]:
    """Return a figure by name, or the experiment that draws a user's table."""
    from natgrad.experiments.atlas.separators.config import Table, own
    from natgrad.experiments.compare import fit as compare
    from natgrad.experiments.compare.config import Data as CompareData
    from natgrad.experiments.complete import fit as complete
    from natgrad.experiments.complete.config import Data as CompleteData
    from natgrad.experiments.race import RACE

    kind = name.partition("/")[0]
    if kind == "map":
        return own(Table(path="", digest="", label=""))
    if kind == "compare":
        return compare.experiment(CompareData(path="", digest="", label=""))
    if kind == "complete":
        return complete.experiment(CompleteData(path="", digest=""))
    return RACE if kind == RACE.name else experiment(name)
