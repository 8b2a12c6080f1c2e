"""Options under their old names, which are accepted for one release."""

import sys
from collections.abc import Mapping, Sequence


def new_names(arguments: Sequence[str], renamed: Mapping[str, str]) -> list[str]:
    """Return arguments with options under their new names; print a warning for each old name.

    Args:
        arguments: The arguments as typed.
        renamed: New names of options by their old names.

    Example:
        >>> new_names(["--no-standardize", "table.csv"], {"standardise": "standardize"})
        ['--no-standardize', 'table.csv']
    """
    flags = {
        f"--{negation}{old}": f"--{negation}{new}"
        for old, new in renamed.items()
        for negation in ("", "no-")
    }
    found = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in flags:
            print(
                f"natgrad: {name} is now {flags[name]}; version 0.3 removes the old name.",
                file=sys.stderr,
            )
        found.append(f"{flags.get(name, name)}{equals}{value}")
    return found
