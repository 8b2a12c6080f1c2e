"""Files that a folder of results no longer needs: listed first, removed only on request."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from natgrad._checks import path as as_path
from natgrad.lab._store.atomic import is_abandoned, is_temporary
from natgrad.lab._store.sources import fingerprint
from natgrad.lab._store.store import CorruptError, Identity, decode
from natgrad.lab.cell import find
from natgrad.lab.failures import StoreError

_RESULT = re.compile(r"[0-9a-f]{64}\.safetensors")


@dataclass(frozen=True)
class Leftover:
    """A file that no rerun would use.

    Attributes:
        path: The file.
        kind: "temporary": an interrupted process was writing it. "set aside": it failed its
            checksum. "superseded": the present sources and torch have a result for the same cell
            and config.
        bytes: Its size.
    """

    path: Path
    kind: Literal["temporary", "set aside", "superseded"]
    bytes: int


def leftovers(folder: Path) -> list[Leftover]:
    """Return the files below a folder of runs that no rerun would use, without removing any.

    Files that a live process is writing are not among them. Nor are results whose config has no
    newer result: results with other options are never superseded.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     leftovers(Path(folder))
        []
    """
    found = []
    results = []
    for path in sorted(as_path(folder, "the path").rglob("*")):
        if is_temporary(path):
            if is_abandoned(path):
                found.append(_leftover(path, "temporary"))
        elif ".safetensors.corrupt-" in path.name:
            found.append(_leftover(path, "set aside"))
        elif _RESULT.fullmatch(path.name):
            results.append(path)
    found += [_leftover(path, "superseded") for path in _superseded(results)]
    return [leftover for leftover in found if leftover is not None]


def remove(files: Iterable[Leftover]) -> int:
    """Remove these files; return the number of freed bytes.

    Raises:
        StoreError: If one cannot be removed.
    """
    freed = 0
    for leftover in files:
        try:
            leftover.path.unlink(missing_ok=True)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise StoreError(f"cannot remove {leftover.path}: {reason}.") from error
        freed += leftover.bytes
    return freed


def _superseded(results: Sequence[Path]) -> list[Path]:
    """Return the results that an up-to-date one replaces."""
    cells: dict[tuple[str, str], list[tuple[Path, Identity]]] = defaultdict(list)
    for path in results:
        identity = _identity(path)
        if identity is not None:
            cells[identity.function, identity.config].append((path, identity))
    sources: dict[str, str | None] = {}
    found = []
    for (function, config), versions in cells.items():
        if len(versions) > 1:
            if function not in sources:
                sources[function] = _present_sources(function)
            present = Identity(function, config, sources[function] or "", str(torch.__version__))
            if present in (identity for _, identity in versions):
                found += [path for path, identity in versions if identity != present]
    return sorted(found)


def _identity(path: Path) -> Identity | None:
    """Return the identity of a file's result; None if it is damaged or in the wrong place."""
    try:
        identity = decode(path.read_bytes()).identity
    except (OSError, CorruptError):
        return None
    return identity if identity.key == path.stem else None


def _present_sources(function: str) -> str | None:
    try:
        return fingerprint(find(function))
    except Exception:  # results of an experiment that cannot be imported now are never superseded
        return None


def _leftover(path: Path, kind: Literal["temporary", "set aside", "superseded"]) -> Leftover | None:
    try:
        return Leftover(path, kind, path.stat().st_size)
    except FileNotFoundError:
        return None  # removed in the meantime
