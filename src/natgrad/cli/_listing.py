"""natgrad list."""

from collections.abc import Sequence
from typing import Any

import tyro
from rich.console import Console
from rich.table import Table

from natgrad.cli._console import to_json
from natgrad.lab.experiment import PRESETS, Experiment
from natgrad.lab.registry import experiments


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return tyro.cli(list_figures, prog="natgrad list", args=arguments)


def list_figures(json: bool = False) -> int:
    """Show the figures, the minutes each preset takes on two cores, and what each figure shows.

    Args:
        json: Print a list of objects instead of a table.
    """
    known = experiments()
    if json:
        print(to_json([_entry(experiment) for experiment in known]))
        return 0
    table = Table(box=None, pad_edge=False)
    table.add_column("figure", no_wrap=True)
    for preset in PRESETS:
        table.add_column(preset, justify="right", no_wrap=True)
    table.add_column("shows")
    for experiment in known:
        minutes = (f"{experiment.minutes[preset]:g}" for preset in PRESETS)
        table.add_row(experiment.name, *minutes, experiment.title)
    console = Console(highlight=False, markup=False)
    console.print(table)
    console.print(f"\n{', '.join(PRESETS)}: minutes on two cores.")
    return 0


def _entry(experiment: Experiment[Any]) -> dict[str, Any]:
    return {
        "figure": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        "minutes": {preset: experiment.minutes[preset] for preset in PRESETS},
    }
