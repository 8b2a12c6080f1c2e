"""natgrad report."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.cli._common.options import from_words


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return from_words(report, prog="natgrad report", args=arguments)


def report(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="[DIR]")] = Path("runs"),
) -> int:
    """Gather all results below a folder in one HTML page that needs no network.

    Args:
        folder: The folder that `natgrad reproduce` wrote.
    """
    from natgrad.lab.report import write_report

    print(write_report(folder))
    return 0
