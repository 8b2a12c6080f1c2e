"""natgrad bench."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.cli._common.console import complain, to_json
from natgrad.cli._common.options import from_words
from natgrad.cli._common.running import MakeSweeper, Running, with_engine
from natgrad.errors import InvalidInputError
from natgrad.lab.experiment import Preset


@dataclass(frozen=True, kw_only=True)
class Options:
    """Race NGD against its best peers, with equal tuning, in seconds to a target.

    Runs are timed by CPU time on one thread, in units of a reference product. Use the machine for
    little else. Without an option it takes about a quarter of an hour on three problems. Each
    problem is a part of the race. Finished parts are kept with their revision, and the same command
    continues after an interruption.
    """

    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the result to this file: all finals and trials, machine and date."""
    full: bool = False
    """The whole race, under three hours: ten problems, more trials, and kfac-jax as well."""
    smoke: bool = False
    """Tiny problems that take half a minute and show that everything works; ignore the numbers."""
    part: Annotated[str | None, tyro.conf.arg(metavar="PROBLEM")] = None
    """Run this part alone, then merge all finished parts; two parts may run at the same time."""
    out: Path = Path("runs")
    """Folder for the result and for the store of finished runs."""
    fresh: bool = False
    """Run everything again, including finished parts and stored runs."""
    quiet: bool = False
    """Show no progress."""


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    options = from_words(Options, prog="natgrad bench", args=arguments)
    if options.full and options.smoke:
        return complain("--full and --smoke cannot be combined; choose one.")
    if options.json is not None and (not options.json.parent.is_dir() or options.json.is_dir()):
        folder = options.json.is_dir()
        problem = "it is a folder" if folder else f"there is no folder {options.json.parent}"
        return complain(f"cannot write {options.json}: {problem}.")
    preset: Preset = "paper" if options.full else "smoke" if options.smoke else "quick"
    from natgrad.experiments.race.config import PRESETS

    names = PRESETS[preset].problems
    if options.part is not None and options.part not in names:
        return complain(f"--part is one of {', '.join(names)}, but is {options.part!r}.")
    # One run at a time, in this process, because a second one would disturb the timing.
    running = Running(out=options.out, engine="serial", fresh=options.fresh, quiet=options.quiet)
    return with_engine(running, lambda sweeper: bench(options, preset, sweeper))


def bench(options: Options, preset: Preset, sweeper: MakeSweeper) -> int:
    """Race, print the result, and return the exit code."""
    from rich.console import Console
    from rich.markdown import Markdown

    from natgrad.experiments.race import RACE, parts
    from natgrad.experiments.race.record import page, record
    from natgrad.lab._run import unexpected

    console, config = Console(highlight=False), RACE.presets[preset]
    for name in config.problems if options.part is None else [options.part]:
        if parts.finished(options.out, config, name) and not options.fresh:
            revision = parts.folder_of(options.out, name).report()["revision"] or "unknown"
            console.print(f"{name}: finished at revision {revision[:12]}; kept.")
            continue
        try:
            parts.run_part(options.out, preset, name, sweeper())
        except InvalidInputError as error:  # its data are not here
            complain(f"{name}: {error}")
    report, arrays = parts.merge(options.out, preset, sweeper())
    found = record(report, arrays)
    text, folder = page(found), options.out / RACE.folder
    try:
        (folder / "summary.md").write_text(text, encoding="utf-8")
        (folder / "race.json").write_text(to_json(found) + "\n", encoding="utf-8")
        if options.json is not None:
            options.json.write_text(to_json(found) + "\n", encoding="utf-8")
    except OSError as error:
        return complain(f"cannot write {error.filename}: {error.strerror}.")
    console.print(Markdown(text))
    console.print(f"\nThe figure, summary.md and race.json are in {folder}")
    return 1 if unexpected(report) else 0
