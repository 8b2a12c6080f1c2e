"""Careful reading of text files that may come from elsewhere; bad files raise a clear error."""

import json
import math
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from natgrad._checks import path as as_path
from natgrad.errors import InvalidInputError

_DEEPEST = 32  # far deeper than natgrad writes, and far less than Python's stack allows
_TOO_DEEP = f"it is nested more than {_DEEPEST} deep"


def read_json(path: Path) -> Any:
    """Return the contents of a file of strict JSON.

    Raises:
        InvalidInputError: If it is missing, broken or nested too deeply, or holds a number or text
            that JSON does not allow.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "a.json"
        ...     _ = path.write_text('{"a": [1, null]}')
        ...     read_json(path)
        {'a': [1, None]}
    """
    return _read(path, json.loads, "is broken", strict=True)


def read_toml(path: Path) -> Any:
    """Return the contents of a file of TOML.

    Raises:
        InvalidInputError: If it is missing or broken, or nested too deeply.
    """
    return _read(path, tomllib.loads, "cannot be read as a config", strict=False)


def _read(path: Path, parse: Callable[[str], Any], problem: str, *, strict: bool) -> Any:
    path = as_path(path, "the path")
    try:
        value = parse(path.read_text(encoding="utf-8"))
        _check(value, _DEEPEST, strict=strict)
    except OSError as error:
        raise InvalidInputError(f"{path} cannot be read: {error.strerror}.") from error
    except RecursionError as error:
        raise InvalidInputError(f"{path} {problem}: {_TOO_DEEP}.") from error
    except (ValueError, OverflowError) as error:  # not UTF-8, or an invalid text or number
        raise InvalidInputError(f"{path} {problem}: {error}.") from error
    return value


def _check(value: Any, room: int, *, strict: bool) -> None:
    """Raise a ValueError for values that would otherwise cause errors only later."""
    if room == 0:
        raise ValueError(_TOO_DEEP)
    if isinstance(value, dict):
        for name, item in value.items():
            _check(name, room - 1, strict=strict)
            _check(item, room - 1, strict=strict)
    elif isinstance(value, list):
        for item in value:
            _check(item, room - 1, strict=strict)
    elif isinstance(value, str):
        value.encode()  # JSON can contain half of a surrogate pair
    elif strict and isinstance(value, int | float) and not math.isfinite(value):
        raise ValueError(f"{value} is not a number of strict JSON")
