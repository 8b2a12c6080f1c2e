"""The folder of a run: config, arrays, pictures and report, always of the same run."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from natgrad._checks import path as as_path
from natgrad.errors import InvalidInputError
from natgrad.lab._store import config_file
from natgrad.lab._store.atomic import explain, make_folder, temporary_name, write_bytes, write_text
from natgrad.lab._store.reading import read_json
from natgrad.lab.arrays import Arrays
from natgrad.lab.failures import StoreError

C = TypeVar("C")

_NUMBER = (int, float)
_REPORT: dict[str, Any] = {
    "figure": str,
    "title": str,
    "source": str,
    "preset": str,
    "options": dict,
    "seconds": _NUMBER,
    "seeds": (int, list, type(None)),
    "claims": list,
    "departures": list,
    "environment": dict,
    "revision": (str, type(None)),
    "cells": dict,
}
_CLAIM: dict[str, Any] = {
    "id": str,
    "statement": str,
    "value": (*_NUMBER, type(None)),
    "sd": (*_NUMBER, type(None)),
    "n": int,
    "relation": str,
    "bound": (*_NUMBER, list, type(None)),
    "holds": (bool, type(None)),
    "expected": bool,
    "source": str,
}


@dataclass(frozen=True)
class RunFolder:
    """The files of one run of a figure.

    `report.json` is removed first and written last. So in a folder that has one, all files belong
    to the same run.

    Attributes:
        path: The folder; it need not exist before `write`.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as out:
        ...     folder = RunFolder(Path(out) / "toy-lines")
        ...     folder.write_failures([{"label": "seed 3", "message": "it ran over 60 s."}])
        ...     folder.failures()[0]["label"]
        'seed 3'
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", as_path(self.path, "the path"))

    def write(
        self,
        *,
        config: Any,
        report: Mapping[str, Any],
        arrays: Arrays,
        pictures: Mapping[str, bytes],
    ) -> None:
        """Replace the run in the folder with another one; remove the failures of earlier runs.

        Args:
            config: The dataclass.
            report: Contents of `report.json`. NaN and infinities become null, tuples lists.
            arrays: The arrays of the figure.
            pictures: Contents by file name, from `figures.render`.

        Raises:
            InvalidInputError: If the report lacks a key, or TOML cannot hold the config.
            StoreError: If the folder cannot be written; the older run stays.
        """
        record = plain(report)
        _check(record, "the report")
        head = {"figure": record["figure"], "preset": record["preset"]}
        files = {
            **pictures,
            "config.toml": config_file.dump(config, **head).encode(),
            "report.json": _json(record).encode(),
        }
        staged: dict[str, Path] = {}
        try:
            make_folder(self.path)
            staged["arrays.safetensors"] = temporary_name(self.path / "arrays.safetensors")
            arrays.save(staged["arrays.safetensors"])
            _flush(staged["arrays.safetensors"])
            for name, data in files.items():
                staged[name] = temporary_name(self.path / name)
                write_bytes(staged[name], data)
            (self.path / "report.json").unlink(missing_ok=True)
            _flush(self.path)
            for name, path in staged.items():  # the report comes last
                os.replace(path, self.path / name)
            _flush(self.path)
            (self.path / "failures.json").unlink(missing_ok=True)
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(explain(self.path, error)) from error
        finally:
            for path in staged.values():
                path.unlink(missing_ok=True)

    def write_failures(self, failures: Sequence[Mapping[str, Any]]) -> None:
        """Write `failures.json` beside an older complete run, which stays."""
        write_text(self.path / "failures.json", _json(plain(list(failures))))

    def report(self) -> dict[str, Any]:
        """Return `report.json`.

        Raises:
            InvalidInputError: If there is none, or it is broken.
        """
        path = self.path / "report.json"
        record = read_json(path)
        _check(record, str(path))
        return record  # type: ignore[no-any-return]

    def config(self, kind: type[C]) -> C:
        """Return the config as its dataclass.

        Raises:
            InvalidInputError: If there is none, or it does not fit.
        """
        return config_file.build(self.path / "config.toml", kind)

    def settings(self) -> dict[str, Any]:
        """Return the config as plain values by name, for callers that lack its dataclass.

        Raises:
            InvalidInputError: If there is none, or it is broken.
        """
        table = config_file.parse(self.path / "config.toml")["config"]
        return table  # type: ignore[no-any-return]

    def arrays(self) -> Arrays:
        """Return the arrays.

        Raises:
            InvalidInputError: If there are none, or the file is broken.
        """
        return Arrays.load(self.path / "arrays.safetensors")

    def failures(self) -> list[dict[str, Any]]:
        """Return the cells that failed in a later run than the reported one.

        Raises:
            InvalidInputError: If the file is broken.
        """
        path = self.path / "failures.json"
        if not path.exists():
            return []
        found = read_json(path)
        if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
            raise InvalidInputError(f"{path} is not a list of failed cells.")
        return found


def plain(value: Any) -> Any:
    """Return a value in the types of JSON; NaN and infinities become None.

    Example:
        >>> plain({"n": (np.int64(3), float("nan"))})
        {'n': [3, None]}
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return plain(dataclasses.asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _flush(path: Path) -> None:
    """Write a file, or the names in a folder, to disk before continuing."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check(record: Any, where: str) -> None:
    _check_keys(record, _REPORT, where)
    for claim in record["claims"]:
        _check_keys(claim, _CLAIM, f"{where}, in a claim,")
        _check_bound(claim["bound"], where)
    command = record.get("command", [])
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        raise InvalidInputError(f"{where} has a command that is not a list of words.")
    if not isinstance(record.get("story", ""), str):
        raise InvalidInputError(f"{where} has a story that is not text.")
    _check_table(record.get("table"), where)
    if not all(isinstance(sentence, str) for sentence in record["departures"]):
        raise InvalidInputError(f"{where} has departures that are not sentences.")


def _check_table(table: Any, where: str) -> None:
    """Raise unless a table is missing, or has a note and rows of as many words as heads."""

    def words(row: Any) -> bool:
        return isinstance(row, list) and all(isinstance(word, str) for word in row)

    if table is None:
        return
    known = isinstance(table, dict) and words(table.get("heads"))
    rows = table.get("rows") if known else None
    if not (
        isinstance(rows, list)
        and isinstance(table.get("note"), str)
        and all(words(row) and len(row) == len(table["heads"]) for row in rows)
    ):
        raise InvalidInputError(f"{where} has a table whose rows do not fit its heads.")


def _check_bound(bound: Any, where: str) -> None:
    kinds = (*_NUMBER, type(None))
    if isinstance(bound, list) and not (
        len(bound) == 2 and all(isinstance(end, kinds) for end in bound)
    ):
        raise InvalidInputError(f"{where}, in a claim, has a bound that is not a pair of numbers.")


def _check_keys(record: Any, keys: Mapping[str, Any], where: str) -> None:
    if not isinstance(record, dict):
        raise InvalidInputError(f"{where} is not a JSON object.")
    for key, kinds in keys.items():
        if key not in record:
            raise InvalidInputError(f"{where} lacks {key!r}; natgrad reproduce writes it.")
        if not isinstance(record[key], kinds):
            raise InvalidInputError(f"{where} has a {key!r} of the wrong kind: {record[key]!r}.")
