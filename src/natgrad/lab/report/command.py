"""The command that repeats a run."""

import shlex
from collections.abc import Mapping
from typing import Any


def command(figure: str, preset: str, options: Mapping[str, Any]) -> list[str]:
    """Return the words of the command for a figure at a preset with some options, for a shell.

    Example:
        >>> " ".join(command("kmh21/fig4", "paper", {"depths": (1, 4), "tied": False}))
        'natgrad reproduce kmh21/fig4 --preset paper --depths 1 4 --no-tied'
    """
    words = ["natgrad", "reproduce", figure, "--preset", preset]
    for name, value in options.items():
        words += _option(name, value)
    return [shlex.quote(word) for word in words]


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):  # the command line knows fields of fields by their own names
        return [word for key, item in value.items() for word in _option(key, item)]
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, tuple | list):
        return [f"--{flag}", *map(str, value)]
    if isinstance(value, str) and value.startswith("-"):  # else it is taken for another option
        return [f"--{flag}={value}"]
    return [f"--{flag}", str(value)]
