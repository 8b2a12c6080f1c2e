"""natgrad list."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from natgrad.cli._common.console import to_json
from natgrad.cli._common.options import from_words
from natgrad.lab.experiment import PRESETS, Experiment
from natgrad.lab.registry import experiments


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return from_words(list_figures, prog="natgrad list", args=arguments)


def list_figures(json: bool = False) -> int:
    """Show the figures, the minutes each preset takes on two cores, and what each figure shows.

    Args:
        json: Print a list of objects instead of a table.
    """
    known = experiments()
    if json:
        print(to_json([_entry(experiment) for experiment in known]))
        return 0
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("figure", no_wrap=True)
    table.add_column("shows")
    for experiment in known:
        minutes = " · ".join(f"{preset} {experiment.minutes[preset]:g}" for preset in PRESETS)
        table.add_row(experiment.name, Text(f"{experiment.title}.\n").append(minutes, "dim"))
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(
        f"\n{', '.join(PRESETS)}: minutes on two cores. `natgrad reproduce FIGURE` makes one."
    )
    return 0


def _entry(experiment: Experiment[Any]) -> dict[str, Any]:
    return {
        "figure": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "minutes": {preset: experiment.minutes[preset] for preset in PRESETS},
    }
