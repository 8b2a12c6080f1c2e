"""natgrad playground."""

import webbrowser
from collections.abc import Sequence

from natgrad.cli._common.options import from_words


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments."""
    return from_words(playground, prog="natgrad playground", args=arguments)


def playground(show: bool = True) -> int:
    """Open the interactive page, which needs no network: drag points, watch the separators.

    Args:
        show: Open the page in a browser; its path is printed in any case.
    """
    from natgrad.playground import PAGE

    print(PAGE)
    if show and not webbrowser.open(PAGE.as_uri()):
        print("No browser could be opened here. Open this file in one.")
    return 0
