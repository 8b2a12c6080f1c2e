"""natgrad atlas."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from natgrad.cli._common.claims import print_report
from natgrad.cli._common.console import to_json
from natgrad.cli._common.options import from_words
from natgrad.cli._common.running import MakeSweeper, Running, with_engine
from natgrad.errors import InvalidInputError
from natgrad.experiments.atlas.separators.config import EXPERIMENT, own
from natgrad.lab.experiment import Experiment, Preset


@dataclass(frozen=True, kw_only=True)
class Options(Running):
    """Show which solution every optimizer picks, certified: on built-in data or your own table."""

    data: Annotated[tyro.conf.Positional[Path | None], tyro.conf.arg(metavar="[DATA]")] = None
    """A table with a header, CSV or Parquet; without it, built-in separable data."""
    label: Annotated[str | None, tyro.conf.arg(metavar="COL")] = None
    """The column of labels of the table."""
    classes: tuple[str, str] | None = None
    """The two labels to separate, if there are more; the second is +1."""
    standardize: bool = True
    """Center features and divide them by their standard deviations."""
    intercept: bool = True
    """Add a constant feature."""
    preset: Preset = "quick"
    """smoke takes seconds, quick a minute, paper ten times more steps."""


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    options = from_words(Options, prog="natgrad atlas", args=arguments)
    typed = ("natgrad", "atlas", *arguments)
    return with_engine(options, lambda sweeper: atlas(options, typed, sweeper))


def atlas(options: Options, typed: tuple[str, ...], sweeper: MakeSweeper) -> int:
    """Compute the atlas, print its table, and return the exit code."""
    from natgrad.experiments.atlas.separators.table import lines, text
    from natgrad.lab._run import Request, run, unexpected
    from natgrad.lab._store.folder import RunFolder
    from natgrad.lab.report import write_report

    one = _experiment(options)
    request = Request(one, options.preset, one.presets[options.preset], typed)
    report = run(request, options.out, sweeper())
    folder = RunFolder(options.out / one.folder)
    table, page = lines(folder.arrays()), write_report(options.out)
    if options.json:
        cells = [line.to_json() for line in table]
        print(to_json(report | {"atlas": cells, "page": str(page)}))
    else:
        print(text(table), "\n")
        print("\n".join(report["departures"]))
        if report["claims"]:
            print_report(Console(highlight=False), report)
        print(f"\nThe picture is in {folder.path}, the report in {page}")
    return 1 if unexpected(report) else 0


def _experiment(options: Options) -> Experiment[Any]:
    """Return the atlas of built-in data or of a table."""
    if options.data is None:
        if options.label is not None or options.classes is not None:
            raise InvalidInputError("--label and --classes belong to a table: name its file first.")
        if not (options.standardize and options.intercept):
            raise InvalidInputError("built-in data are used as they are: name a table first.")
        return EXPERIMENT
    if options.label is None:
        raise InvalidInputError("a table needs the name of its column of labels: --label COL.")
    from natgrad.experiments.atlas.separators.rows import table_of

    return own(
        table_of(
            options.data,
            options.label,
            classes=options.classes,
            standardize=options.standardize,
            intercept=options.intercept,
        )
    )
