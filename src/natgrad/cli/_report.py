"""natgrad report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.lab.report import write_report


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return tyro.cli(report, prog="natgrad report", args=arguments)


def report(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="[DIR]")] = Path("runs"),
) -> int:
    """Gather all results below a folder in one HTML page that needs no network.

    Args:
        folder: Where `natgrad reproduce` has left its results.
    """
    print(write_report(folder))
    return 0
