"""natgrad reproduce."""

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console

from natgrad.cli._claims import print_report
from natgrad.cli._console import complain, to_json
from natgrad.cli._running import MakeSweeper, Running, report_failures, with_engine
from natgrad.errors import InvalidInputError
from natgrad.experiments import load
from natgrad.lab._run import Request, run, unexpected
from natgrad.lab.experiment import PRESETS, Preset
from natgrad.lab.failures import CellsFailedError, Failure
from natgrad.lab.registry import experiment, experiments
from natgrad.lab.report import write_report


@dataclass(frozen=True, kw_only=True)
class Options(Running):
    """How to run, whatever the figure."""

    figures: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[FIGURE ...]")
    ] = ()
    """Figures by name, as `natgrad list` shows them; all if none is named."""
    preset: Preset = "quick"
    """smoke takes seconds, quick minutes, paper has the sizes of the papers."""


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    load()
    options, requests = parse(arguments)
    return with_engine(options, lambda sweeper: execute(options, requests, sweeper))


def parse(arguments: Sequence[str]) -> tuple[Options, list[Request]]:
    """Return how to run, and what: with one figure, the fields of its config are options too."""
    names, rest = _split(arguments)
    chosen = [experiment(name) for name in names] or experiments()
    ordered = [*names, *rest]
    settings: dict[str, Any] = {"prog": "natgrad reproduce", "args": ordered}
    markers = (tyro.conf.OmitArgPrefixes,)
    if len(names) != 1:
        try:
            options = tyro.cli(Options, description=_ABOUT, config=markers, **settings)
        except SystemExit as stop:
            if stop.code:
                complain("the options of a figure's config are accepted when one FIGURE is named.")
            raise
        chosen = [experiment(name) for name in options.figures] or chosen
        return options, [Request(e, options.preset, e.presets[options.preset]) for e in chosen]
    (one,) = chosen
    preset = one.presets[_preset(rest)]
    both = make_dataclass(
        "Arguments",
        [
            ("options", Options, field(default=Options())),
            ("config", type(preset), field(default=preset)),
        ],
    )
    about = f"{_ABOUT}\n\n{one.name}: {one.title}. {one.source}."
    found: Any = tyro.cli(both, description=about, config=markers, **settings)
    return found.options, [Request(one, found.options.preset, found.config)]


def execute(options: Options, requests: Sequence[Request], sweeper: MakeSweeper) -> int:
    """Run the requests, print what came out, and return the exit code."""
    reports: list[dict[str, Any]] = []
    failures: list[Failure] = []
    console = Console(highlight=False, stderr=options.json)
    for request in requests:
        try:
            reports.append(run(request, options.out, sweeper()))
        except CellsFailedError as error:
            failures += error.failures
        else:
            print_report(console, reports[-1])
    page = write_report(options.out)
    if options.json:
        failed = [failure.to_json() for failure in failures]
        print(to_json({"reports": reports, "failures": failed, "page": str(page)}))
    console.print(f"\nThe report is in {page}")
    if failures:
        return report_failures(failures)
    return 1 if any(unexpected(report) for report in reports) else 0


_ABOUT = "Compute figures, judge their claims, save everything."


def _split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the figures' names, which may stand anywhere, and the other arguments."""
    known = {e.name for e in experiments()}
    names: list[str] = []
    rest: list[str] = []
    for argument in arguments:
        leading = not rest and not argument.startswith("-")
        (names if leading or argument in known else rest).append(argument)
    return list(dict.fromkeys(names)), rest


def _preset(arguments: Sequence[str]) -> Preset:
    """Return the preset among arguments: its config is needed before all can be parsed."""
    for position, argument in enumerate(arguments):
        flag, _, value = argument.partition("=")
        if flag == "--preset":
            value = value or next(iter(arguments[position + 1 :]), "")
            for preset in PRESETS:
                if value == preset:
                    return preset
            raise InvalidInputError(f"--preset is one of {', '.join(PRESETS)}, not {value!r}.")
    return Options().preset
