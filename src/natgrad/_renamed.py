"""Options under their old names, which warn for one release."""

import warnings
from typing import Any

from natgrad.errors import InvalidInputError


def renamed(options: dict[str, Any], old: str, new: str, where: str) -> dict[str, Any]:
    """Return keyword options with `old` under its new name, and warn if it was there.

    Args:
        options: What the caller gave.
        old: The name until version 0.1.
        new: The name now.
        where: The function whose option it is.

    Raises:
        InvalidInputError: If both names came.

    Example:
        >>> renamed({"center": "none"}, "centring", "center", "complete")
        {'center': 'none'}
    """
    if old not in options:
        return options
    if new in options:
        raise InvalidInputError(f"{where} got {old} and {new}: they are one option; give {new}.")
    warnings.warn(
        f"the option {old} of {where} is now {new}; the old name goes with version 0.3.",
        DeprecationWarning,
        stacklevel=3,
    )
    return {new if name == old else name: value for name, value in options.items()}
