"""Claims and failures as tables for people."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from natgrad.lab.failures import Failure

_SHOWN = 20  # failures in the table; the rest are in failures.json


def print_report(console: Console, report: dict[str, Any]) -> None:
    """Print a figure's claims with their numbers and verdicts."""
    changed = f", {len(report['options'])} options changed" if report["options"] else ""
    console.print()
    console.print(Text(f"{report['figure']}: {report['title']}", style="bold"))
    console.print(
        f"preset {report['preset']}{changed}, {report['seconds']:.1f} s, "
        f"{report['cells']['reused']} of {report['cells']['done']} cells reused"
    )
    table = Table("verdict", "claim", "measured", "bound", box=None, padding=(0, 2, 0, 0))
    for claim in report["claims"]:
        table.add_row(verdict(claim), Text(claim["statement"]), measured(claim), bound(claim))
    console.print(table)


def verdict(claim: dict[str, Any]) -> Text:
    """Return what became of a claim, in a word or two."""
    if claim["holds"] is None:
        return Text("not judged", style="dim")
    if claim["holds"] != claim["expected"]:
        return Text("FAILS" if claim["expected"] else "HOLDS, unexpectedly", style="bold red")
    return Text("holds", style="green") if claim["holds"] else Text("refuted", style="yellow")


def measured(claim: dict[str, Any]) -> str:
    """Return the number with its spread and number of seeds."""
    if claim["value"] is None:
        return "no number"
    spread = f" ± {claim['sd']:.2g}" if claim["sd"] is not None else ""
    seeds = f" (n = {claim['n']})" if claim["n"] > 1 else ""
    return f"{claim['value']:.5g}{spread}{seeds}"


def bound(claim: dict[str, Any]) -> str:
    """Return relation and bound."""
    if claim["relation"] == "within":
        low, high = claim["bound"]
        return f"{low:g} … {high:g}"
    return f"{claim['relation']} {claim['bound']:g}"


def print_failures(console: Console, failures: Sequence[Failure]) -> None:
    """Print the cells that failed, and why."""
    table = Table("failed cell", "why", "attempts", box=None, padding=(0, 2, 0, 0))
    for failure in failures[:_SHOWN]:
        name = failure.label or failure.function
        table.add_row(Text(name), Text(f"{failure.kind}: {failure.message}"), str(failure.attempts))
    console.print(table)
    if len(failures) > _SHOWN:
        console.print(f"and {len(failures) - _SHOWN} more; failures.json has them all.")
