"""natgrad bench."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.cli._console import complain, to_json
from natgrad.cli._options import from_words
from natgrad.cli._running import MakeSweeper, Running, with_engine
from natgrad.lab.experiment import Preset


@dataclass(frozen=True, kw_only=True)
class Options:
    """Race NGD against its best peers, with equal tuning, in seconds to a target.

    Runs are timed one after the other, on one thread. Do not use the machine for anything else.
    Without an option it takes about a quarter of an hour on three problems. Finished runs are kept,
    and the same command continues after an interruption.
    """

    json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the result to this file: all finals and trials, machine and date."""
    full: bool = False
    """The whole race, about an hour: four problems, more trials, and kfac-jax as well."""
    smoke: bool = False
    """Tiny problems that take half a minute and show that everything works; ignore the numbers."""
    out: Path = Path("runs")
    """Folder for the result and for the store of finished runs."""
    fresh: bool = False
    """Run everything again, including stored runs."""
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
    # One run at a time, in this process, because a second one would disturb the timing.
    running = Running(out=options.out, engine="serial", fresh=options.fresh, quiet=options.quiet)
    return with_engine(running, lambda sweeper: bench(options, sweeper))


def bench(options: Options, sweeper: MakeSweeper) -> int:
    """Race, print the result, and return the exit code."""
    from rich.console import Console
    from rich.markdown import Markdown

    from natgrad.experiments.race import RACE
    from natgrad.experiments.race.record import page, record
    from natgrad.lab._run import Request, run, unexpected
    from natgrad.lab._store.folder import RunFolder

    preset: Preset = "paper" if options.full else "smoke" if options.smoke else "quick"
    size = {"paper": ("--full",), "smoke": ("--smoke",), "quick": ()}[preset]
    request = Request(RACE, preset, RACE.presets[preset], ("natgrad", "bench", *size))
    report = run(request, options.out, sweeper())
    folder = RunFolder(options.out / RACE.folder)
    found = record(report, folder.arrays())
    text = page(found)
    try:
        (folder.path / "summary.md").write_text(text, encoding="utf-8")
        if options.json is not None:
            options.json.write_text(to_json(found) + "\n", encoding="utf-8")
    except OSError as error:
        return complain(f"cannot write {error.filename}: {error.strerror}.")
    console = Console(highlight=False)
    console.print(Markdown(text))
    console.print(f"\nThe figure and summary.md are in {folder.path}")
    return 1 if unexpected(report) else 0
