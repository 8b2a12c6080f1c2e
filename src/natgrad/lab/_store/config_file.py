"""config.toml: a frozen dataclass as readable text, read back as an equal dataclass.

TOML has no None; an empty table `{}` stands for it.
"""

import dataclasses
import json
import re
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from natgrad._checks import describe
from natgrad.errors import InvalidInputError
from natgrad.lab._store.reading import read_toml

C = TypeVar("C")

_HEAD = "# The config that gave this figure. {} stands for None, which TOML lacks.\n"


def dump(config: Any, **head: str) -> str:
    """Return the text of a config, below lines that name its figure and preset.

    Raises:
        InvalidInputError: If it is not a dataclass, or holds a value that TOML cannot.

    Example:
        >>> @dataclasses.dataclass(frozen=True)
        ... class Lines:
        ...     depths: tuple[int, ...] = (1, 4)
        ...     end: float = float("inf")
        >>> print(dump(Lines(), figure="toy/lines", preset="smoke"))
        # The config that gave this figure. {} stands for None, which TOML lacks.
        figure = "toy/lines"
        preset = "smoke"
        <BLANKLINE>
        [config]
        depths = [1, 4]
        end = inf
        <BLANKLINE>
    """
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        raise InvalidInputError(f"a config is an instance of a dataclass, not {describe(config)}.")
    top = "".join(f"{key} = {_toml(value)}\n" for key, value in head.items())
    try:
        lines = [f"{_key(name)} = {_toml(value)}\n" for name, value in _fields(config)]
    except RecursionError as error:
        raise InvalidInputError("a config is nested too deeply.") from error
    return f"{_HEAD}{top}\n[config]\n{''.join(lines)}"


def parse(path: Path) -> dict[str, Any]:
    """Return the contents of a file that `dump` wrote as plain tables, with None for `{}`.

    Raises:
        InvalidInputError: If it is missing, or `dump` did not write it.
    """
    table: dict[str, Any] = read_toml(path)
    if not isinstance(table.get("config"), dict):
        raise InvalidInputError(f"{path} has no table [config]; natgrad reproduce writes one.")
    return table | {"config": {name: _plain(v) for name, v in table["config"].items()}}


def build(path: Path, kind: type[C]) -> C:
    """Return the config in a file as its dataclass.

    Raises:
        InvalidInputError: If the file is missing or broken, or has other fields.
    """
    table = parse(path)["config"]
    try:
        made: C = _restore(table, kind)
    except InvalidInputError as error:
        raise InvalidInputError(f"{path} does not fit {kind.__name__}: {error}") from error
    return made


def _fields(config: Any) -> list[tuple[str, Any]]:
    return [(field.name, getattr(config, field.name)) for field in dataclasses.fields(config)]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if value is None:
        return "{}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value)  # shortest exact digits; inf and nan are valid TOML
    if isinstance(value, str):  # strings of JSON and TOML agree, except for DEL
        return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(item) for item in value)}]"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return f"{{ {', '.join(f'{_key(k)} = {_toml(v)}' for k, v in _fields(value))} }}"
    raise InvalidInputError(
        "a config holds numbers, strings, booleans, None, tuples and dataclasses, not "
        f"{describe(value)}."
    )


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()} or None
    return value


def _restore(value: Any, hint: Any) -> Any:
    """Return a plain value in the annotated type: lists become tuples, tables dataclasses."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _first_fit(value, arguments)
    if origin is typing.Annotated:
        return _restore(value, arguments[0])
    if origin is typing.Literal and value in arguments:
        return value
    if hint is tuple or origin is tuple:
        return _restore_tuple(value, arguments)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return _restore_fields(value, hint)
    if hint is typing.Any:
        return tuple(_restore(v, hint) for v in value) if isinstance(value, list) else value
    if hint is None or hint is types.NoneType:
        fits = value is None
    elif hint is float:
        fits = isinstance(value, int | float) and not isinstance(value, bool)
    else:
        fits = isinstance(hint, type) and type(value) is hint
    if not fits:
        wanted = hint.__name__ if isinstance(hint, type) else hint
        raise InvalidInputError(f"expected {wanted}, but got {value!r}.")
    return value


def _first_fit(value: Any, hints: tuple[Any, ...]) -> Any:
    for hint in hints:
        try:
            return _restore(value, hint)
        except InvalidInputError:
            continue
    raise InvalidInputError(f"{value!r} fits none of {', '.join(map(str, hints))}.")


def _restore_tuple(value: Any, hints: tuple[Any, ...]) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise InvalidInputError(f"expected a list, but got {value!r}.")
    if not hints:
        hints = (typing.Any, ...)
    if len(hints) == 2 and hints[1] is Ellipsis:
        hints = (hints[0],) * len(value)
    if len(hints) != len(value):
        raise InvalidInputError(f"expected {len(hints)} items, but got {value!r}.")
    return tuple(_restore(v, hint) for v, hint in zip(value, hints, strict=True))


def _restore_fields(value: Any, kind: type[Any]) -> Any:
    value = {} if value is None and not dataclasses.fields(kind) else value
    if not isinstance(value, dict):
        raise InvalidInputError(f"expected a table, but got {value!r}.")
    names = {field.name for field in dataclasses.fields(kind)}
    for problem, found in (("lacks", names - value.keys()), ("also has", value.keys() - names)):
        if found:
            raise InvalidInputError(f"it {problem} {', '.join(sorted(found))}.")
    hints = typing.get_type_hints(kind, include_extras=True)
    return kind(**{name: _restore(item, hints[name]) for name, item in value.items()})
