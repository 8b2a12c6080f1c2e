"""natgrad verify."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.cli._common.console import complain, to_json
from natgrad.cli._common.options import from_words


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return from_words(verify, prog="natgrad verify", args=arguments)


def verify(json: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None) -> int:
    """Compute every theorem and numbered identity and print its residual.

    Args:
        json: Also write the outcomes to this file, a list of objects.
    """
    if json is not None and (not json.parent.is_dir() or json.is_dir()):
        problem = "it is a folder" if json.is_dir() else f"there is no folder {json.parent}"
        return complain(f"cannot write {json}: {problem}.")
    from rich.console import Console
    from rich.markup import escape

    from natgrad.verify import check, identities

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
            json.write_text(to_json([outcome.to_json() for outcome in outcomes]) + "\n")
        except OSError as error:
            return complain(f"cannot write {json}: {error.strerror}.")
    return 1 if failed else 0
