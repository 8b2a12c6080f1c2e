"""Reading of CSV and Parquet files, before their columns are interpreted."""

import csv
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from natgrad._checks import describe
from natgrad._checks import path as check_path
from natgrad._named import named
from natgrad.errors import InvalidInputError

_MISSING = frozenset(("", "nan", "na", "n/a", "null", "none", "?"))


@named
def digest_of(path: str | Path) -> str:
    """Return a hash of a file's bytes.

    Raises:
        InvalidInputError: If there is no such file.
    """
    with existing(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@named
def existing(path: str | Path) -> Path:
    """Return the path of an existing file.

    Raises:
        InvalidInputError: If there is no such file.
    """
    path = check_path(path, "path")
    try:
        found = path.is_file()
    except OSError as error:  # e.g. a name that is too long
        raise InvalidInputError(
            f"there is no file {describe(str(path))}: {error.strerror}."
        ) from error
    if not found:
        raise InvalidInputError(f"there is no file {path}.")
    return path


@named
def is_parquet(path: Path) -> bool:
    """Return whether a file is read with pyarrow; all other files are CSV."""
    return check_path(path, "path").suffix.lower() in (".parquet", ".pq")


@named
def is_missing(value: Any) -> bool:
    """Return whether a field is empty or missing.

    Example:
        >>> is_missing(None), is_missing(" n/a "), is_missing("0"), is_missing(0.0)
        (True, True, False, False)
    """
    return value is None or (isinstance(value, str) and value.strip().lower() in _MISSING)


@contextmanager
@named
def csv_lines(path: Path) -> Iterator[Iterator[list[str]]]:
    """Open a CSV file, separated by comma, semicolon or tab, and yield its lines except empty ones.

    Raises:
        InvalidInputError: If it cannot be read in this way, now or at a later line.
    """
    path = check_path(path, "path")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=head.count)
            yield (line for line in csv.reader(file, delimiter=delimiter, strict=True) if line)
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} cannot be read as CSV in UTF-8: {error}. Save it in the encoding UTF-8 first."
        ) from error
    except (csv.Error, OSError) as error:
        raise InvalidInputError(f"{path} cannot be read as CSV in UTF-8: {error}.") from error


@named
def parquet_table(path: Path) -> Any:
    """Return a Parquet file as pyarrow's table.

    Raises:
        InvalidInputError: If it cannot be read, or pyarrow is not installed.
    """
    path = check_path(path, "path")
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise InvalidInputError(
            f"reading {path} needs pyarrow: pip install 'natgrad[tables]', or write the table as "
            "CSV."
        ) from error
    try:
        return pyarrow.parquet.read_table(path)
    except (OSError, ValueError) as error:
        reason = (str(error).splitlines() or [""])[0].rstrip(".")
        raise InvalidInputError(f"{path} cannot be read as Parquet: {reason}.") from error
