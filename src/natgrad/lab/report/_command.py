"""The command that repeats a run."""

import shlex
from collections.abc import Mapping
from typing import Any


def command(report: Mapping[str, Any], options: Mapping[str, Any]) -> list[str]:
    """Return the words of the command that repeats a run, for a shell.

    Args:
        report: Its report; `command` is the command as typed, empty for `natgrad reproduce`.
        options: The fields of the config that differ from the preset's.

    Example:
        >>> report = {"figure": "kmh21/fig4", "preset": "paper"}
        >>> " ".join(command(report, {"depths": (1, 4), "tied": False}))
        'natgrad reproduce kmh21/fig4 --preset paper --depths 1 4 --no-tied'
    """
    words = list(report.get("command") or ())
    if not words:
        words = ["natgrad", "reproduce", report["figure"], "--preset", report["preset"]]
        for name, value in options.items():
            words += _option(name, value)
    return [shlex.quote(word) for word in words]


def _option(name: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):  # nested fields are options under their own names
        return [word for key, item in value.items() for word in _option(key, item)]
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, tuple | list):
        return [f"--{flag}", *map(str, value)]
    if isinstance(value, str) and value.startswith("-"):  # otherwise it is read as another option
        return [f"--{flag}={value}"]
    return [f"--{flag}", str(value)]
