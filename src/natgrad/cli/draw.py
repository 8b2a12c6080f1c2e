"""natgrad draw."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.experiments import load
from natgrad.lab import run
from natgrad.lab.folder import RunFolder
from natgrad.lab.registry import experiment


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return tyro.cli(draw, prog="natgrad draw", args=arguments)


def draw(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")],
) -> int:
    """Draw a figure again from its saved arrays, computing nothing.

    Args:
        folder: The folder of one figure, such as runs/kmh21-fig4.
    """
    load()
    figure = RunFolder(folder).report()["figure"]
    for path in run.draw(experiment(figure), folder):
        print(path)
    return 0
