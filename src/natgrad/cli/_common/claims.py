"""Readable tables of claims and failures."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from natgrad.lab._formats import duration, measured, required, verdict
from natgrad.lab.failures import Failure

_STYLES = {"holds": "green", "refutes": "yellow", "unjudged": "dim", "fails": "bold red"}
_SHOWN = 20  # failures in the table; the rest are in failures.json


def print_report(console: Console, report: dict[str, Any]) -> None:
    """Print a figure's claims with their numbers and verdicts."""
    changed = f" with {', '.join(report['options'])} changed" if report["options"] else ""
    cells = report["cells"]
    console.print()
    console.print(Text(f"{report['figure']}: {report['title']}", style="bold"))
    console.print(
        f"preset {report['preset']}{changed}, {duration(report['seconds'])}, "
        f"{cells['reused']} of {cells['done']} cells reused"
    )
    table = Table("verdict", "claim", "measured", "bound", box=None, padding=(0, 2, 0, 0))
    for claim in report["claims"]:
        found = verdict(claim["holds"], claim["expected"])
        style = _STYLES[found.kind]
        statement = Text(claim["statement"])
        table.add_row(Text(found.words, style=style), statement, measured(claim), required(claim))
    console.print(table)


def print_failures(console: Console, failures: Sequence[Failure]) -> None:
    """Print the cells that failed, with the reason."""
    table = Table("failed cell", "why", "attempts", box=None, padding=(0, 2, 0, 0))
    for failure in failures[:_SHOWN]:
        name = failure.label or failure.function
        table.add_row(Text(name), Text(f"{failure.kind}: {failure.message}"), str(failure.attempts))
    console.print(table)
    if len(failures) > _SHOWN:
        console.print(f"and {len(failures) - _SHOWN} more; failures.json lists them all.")
