"""The command line: thin, every command a function of its options."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from natgrad import __version__


def verify(json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None) -> int:
    """Compute every theorem and numbered identity and print its residual.

    Args:
        json: Also write the outcomes to this file, a list of objects.
    """
    from rich.console import Console
    from rich.markup import escape

    from natgrad.verify import check, identities

    if json is not None and (not json.parent.is_dir() or json.is_dir()):
        problem = "it is a folder" if json.is_dir() else f"there is no folder {json.parent}"
        return _complain(f"cannot write {json}: {problem}.")
    console = Console(highlight=False)
    outcomes = []
    with console.status("verifying") as status:
        for claim in identities():
            status.update(f"verifying {claim.id}")
            outcome = check(claim)
            outcomes.append(outcome)
            mark = "[green]holds[/]" if outcome.holds else "[bold red]FAILS[/]"
            console.print(
                f"{mark}  {outcome.id:<30} residual {outcome.residual:.1e}, "
                f"tolerance {outcome.tolerance:.0e}, {outcome.seconds:.2f} s\n"
                f"       [dim]{escape(outcome.statement)}. {escape(outcome.source)}[/]"
            )
    failed = [outcome.id for outcome in outcomes if not outcome.holds]
    console.print(f"{len(outcomes) - len(failed)} of {len(outcomes)} identities hold.")
    if json is not None:
        try:
            _write_json(json, [outcome.to_json() for outcome in outcomes])
        except OSError as error:
            return _complain(f"cannot write {json}: {error.strerror}.")
    return 1 if failed else 0


def _write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def _complain(message: str) -> int:
    print(f"natgrad: {message}", file=sys.stderr)
    return 2


COMMANDS = {"verify": verify}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments == ["--version"]:
        print(f"natgrad {__version__}")
        return 0
    return tyro.extras.subcommand_cli_from_dict(
        COMMANDS,
        prog="natgrad",
        description="Exact natural gradients, and the solutions they pick.",
        args=arguments,
    )
