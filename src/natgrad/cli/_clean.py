"""natgrad clean."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from natgrad.cli._common.options import from_words
from natgrad.errors import InvalidInputError


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return from_words(clean, prog="natgrad clean", args=arguments)


def clean(
    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="[DIR]")] = Path("runs"),
    yes: bool = False,
) -> int:
    """List files in a folder of results that are no longer needed, and remove them if asked.

    These are unfinished files of interrupted processes, files that failed their checksum and were
    set aside, and results that a newer one of the same config replaces.

    Args:
        folder: The folder that `natgrad reproduce` wrote.
        yes: Remove the listed files.
    """
    from natgrad.lab._formats import size
    from natgrad.lab._store.cleaning import leftovers, remove

    if not folder.is_dir():
        raise InvalidInputError(f"there is no folder {folder}; natgrad reproduce makes one.")
    found = leftovers(folder)
    for leftover in found:
        print(f"{leftover.kind:<11} {size(leftover.bytes):>8}  {leftover.path}")
    total = size(sum(leftover.bytes for leftover in found))
    if not found:
        print("nothing to remove.")
    elif yes:
        remove(found)
        print(f"removed {len(found)} files, {total}.")
    else:
        print(f"{len(found)} files, {total}; natgrad clean --yes removes them.")
    return 0
