"""natgrad reproduce."""

import argparse
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.text import Text

from natgrad.cli._common.claims import print_report
from natgrad.cli._common.console import complain, to_json
from natgrad.cli._common.options import from_words
from natgrad.cli._common.running import MakeSweeper, Running, report_failures, with_engine
from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import PRESETS, Experiment, Preset
from natgrad.lab.failures import CellsFailedError, Failure
from natgrad.lab.registry import expand, experiment, names, names_by_default


@dataclass(frozen=True, kw_only=True)
class Options(Running):
    """Options that do not depend on the figure."""

    figures: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[FIGURE ...]")
    ] = ()
    """Figures by name, as `natgrad list` shows them, or groups such as pinn. Without names: the
    figures of both papers."""
    all: bool = False
    """Every figure that there is."""
    preset: Preset = "quick"
    """smoke takes seconds, quick takes minutes, paper has the sizes of the papers."""


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    options, chosen = parse(arguments)
    return with_engine(options, lambda sweeper: execute(options, chosen, sweeper))


def parse(arguments: Sequence[str]) -> tuple[Options, list[tuple[Experiment[Any], Any]]]:
    """Return the options, and the figures with their configs.

    With one figure, the fields of its config are options too.
    """
    preset, rest = _take_preset(arguments)
    named, rest = _take_figures(rest)
    leading = [figure for name in named for figure in expand(name)]
    one = experiment(leading[0]) if len(leading) == 1 else None
    about = "Compute figures, judge their claims, save everything."
    fields: list[Any] = [("run", Options, field(default=Options(preset=preset)))]
    if one is not None:
        about += "\n\n" + textwrap.fill(f"{one.name}: {one.title}. {one.source}.", 80)
        config: Any = one.presets[preset]
        fields.append(("figure", type(config), field(default=config)))
    try:
        found: Any = from_words(
            make_dataclass("Arguments", fields),
            prog="natgrad reproduce",
            description=about,
            args=[*leading, *rest],
            config=(tyro.conf.OmitArgPrefixes,),
        )
    except SystemExit as stop:
        if stop.code and one is None:
            complain(
                "the options of a figure's config are accepted only if exactly one FIGURE is named."
            )
        raise
    if one is not None:
        return found.run, [(one, found.figure)]
    by_default = names_by_default(every=found.run.all)
    chosen = [experiment(name) for name in found.run.figures or by_default]
    return found.run, [(each, each.presets[preset]) for each in chosen]


def _take_preset(arguments: Sequence[str]) -> tuple[Preset, list[str]]:
    """Return the preset, whose config sets the defaults of the other options, and the others."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--preset", nargs="?", default=Options.preset, const="")
    found, rest = parser.parse_known_args(arguments)
    for preset in PRESETS:
        if found.preset == preset:
            return preset, rest
    raise InvalidInputError(f"--preset is one of {', '.join(PRESETS)}, not {found.preset!r}.")


def _take_figures(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of figures, at any position, and the other arguments."""
    known = set(names())
    leading: list[str] = []
    rest: list[str] = []
    for argument in arguments:
        first = not rest and not argument.startswith("-")
        (leading if first or argument in known else rest).append(argument)
    return list(dict.fromkeys(leading)), rest


def _point_at(console: Console, first: Experiment[Any], out: Path, page: Path, left: int) -> None:
    """Print the story of the first figure and where to see it, while the others are computed."""
    console.print()
    console.print(Text(first.story))
    console.print(f"Its picture is {out / first.folder / 'figure.png'}", soft_wrap=True)
    console.print(
        f"{left} more figures follow. Open {page} now: it grows as they are finished.",
        soft_wrap=True,
    )


def execute(
    options: Options, chosen: Sequence[tuple[Experiment[Any], Any]], sweeper: MakeSweeper
) -> int:
    """Run the figures, print the results, and return the exit code."""
    from natgrad.lab._run import Request, run, unexpected
    from natgrad.lab.report import write_report

    reports: list[dict[str, Any]] = []
    failures: list[Failure] = []
    console = Console(highlight=False, stderr=options.json)
    for place, (each, config) in enumerate(chosen):
        try:
            request = Request(each, options.preset, config)
            reports.append(run(request, options.out, sweeper()))
        except CellsFailedError as error:
            failures += error.failures
        else:
            print_report(console, reports[-1])
        page = write_report(options.out)  # after each figure, so that there is something to look at
        if place == 0 and len(chosen) > 1 and reports:
            _point_at(console, each, options.out, page, len(chosen) - 1)
    if options.json:
        failed = [failure.to_json() for failure in failures]
        print(to_json({"reports": reports, "failures": failed, "page": str(page)}))
    console.print(f"\nThe report is in {page}")
    if failures:
        return report_failures(failures)
    return 1 if any(unexpected(report) for report in reports) else 0
