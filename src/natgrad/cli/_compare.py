"""natgrad compare."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.cli._common.console import to_json
from natgrad.cli._common.options import from_words
from natgrad.cli._common.renamed import new_names
from natgrad.cli._common.running import MakeSweeper, Running, with_engine
from natgrad.experiments.compare.config import RENAMED, Choices


@dataclass(frozen=True, kw_only=True)
class Options(Running):
    """Compare separators of your own table: EGD at each depth, NGD, and their limits."""

    data: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DATA")]
    """A table with a header, CSV or Parquet; all other columns are features, text one-hot."""
    label: Annotated[str, tyro.conf.arg(metavar="COL")]
    """The column of labels."""
    test: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A table of test rows; without it, accuracy is from cross-validation or held-out rows."""
    unlabeled: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """A table of inputs without labels, for the population Fisher."""
    classes: tuple[str, ...] | None = None
    """The labels to separate, if not all; of two, the second is +1."""
    force: bool = False
    """Overwrite results of other options or other data."""
    choices: Choices = field(default_factory=Choices)


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    arguments = new_names(arguments, RENAMED)
    options = from_words(
        Options, prog="natgrad compare", args=arguments, config=(tyro.conf.OmitArgPrefixes,)
    )
    typed = ("natgrad", "compare", *arguments)
    return with_engine(options, lambda sweeper: compare(options, typed, sweeper))


def compare(options: Options, typed: tuple[str, ...], sweeper: MakeSweeper) -> int:
    """Compare, print the result, and return the exit code."""
    from natgrad.experiments._results import refuse_to_overwrite
    from natgrad.experiments.compare.fit import data_of, experiment
    from natgrad.experiments.compare.result import comparison
    from natgrad.lab._run import Request, run
    from natgrad.lab._store.folder import RunFolder
    from natgrad.lab.report import write_report

    data = data_of(
        options.data,
        options.label,
        test=options.test,
        unlabeled=options.unlabeled,
        classes=options.classes,
    )
    one = experiment(data, **asdict(options.choices))
    request = Request(one, "quick", one.presets["quick"], typed)
    if not options.force:
        refuse_to_overwrite(options.out / one.folder, request.config)
    report = run(request, options.out, sweeper())
    page = write_report(options.out)
    folder = RunFolder(options.out / one.folder)
    found = comparison(request.config, folder.arrays())
    if options.json:
        print(to_json(report | {"comparison": found.to_json(), "page": str(page)}))
    else:
        print(found)
        print(f"\nThe figure is in {folder.path}, the report in {page}")
    return 0
