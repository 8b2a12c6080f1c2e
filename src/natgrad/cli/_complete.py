"""natgrad complete."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.cli._common.console import to_json
from natgrad.cli._common.options import from_words
from natgrad.cli._common.renamed import new_names
from natgrad.cli._common.running import MakeSweeper, Running, with_engine
from natgrad.experiments.complete.config import RENAMED, Preset, TableOptions


@dataclass(frozen=True, kw_only=True)
class Options(Running):
    """Complete a matrix given as a table of (row, column, value), and test the predictions."""

    data: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATA")]
    """CSV or Parquet: one observed entry per line."""
    table: TableOptions = field(default_factory=TableOptions)
    preset: Preset = "quick"
    """How many depths and scales to try."""


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    arguments = new_names(arguments, RENAMED)
    options = from_words(
        Options, prog="natgrad complete", args=arguments, config=(tyro.conf.OmitArgPrefixes,)
    )
    typed = ("natgrad", "complete", *arguments)
    return with_engine(options, lambda sweeper: complete(options, typed, sweeper))


def complete(options: Options, typed: tuple[str, ...], sweeper: MakeSweeper) -> int:
    """Complete, print the result, and return the exit code."""
    from natgrad.experiments.complete.fit import complete_table
    from natgrad.lab.report import write_report

    outcome = complete_table(
        options.data,
        options.table,
        preset=options.preset,
        out=options.out,
        sweep=sweeper(),
        command=typed,
    )
    page, found = write_report(options.out), outcome.completed
    if options.json:
        places = {"saved": str(outcome.saved), "page": str(page)}
        print(to_json(outcome.report | {"completed": found.to_json()} | places))
    else:
        print("\n".join(found.lines()))
        print(f"\nThe completed matrix is in {outcome.saved}, the report in {page}")
    return 0
