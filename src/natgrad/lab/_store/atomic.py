"""Files that are complete or absent, even after a crash: write a temporary file, flush, rename."""

import errno
import os
import re
import secrets
import socket
import time
from pathlib import Path

from natgrad.lab.failures import StoreError

_HOST = re.sub(r"[^\w-]", "_", socket.gethostname()) or "host"
_TEMPORARY = re.compile(r"\.(?P<host>[\w-]+)\.(?P<pid>\d+)\.[0-9a-f]{8}\.tmp$")
_FULL = {errno.ENOSPC, errno.EDQUOT}
_PATIENCE = 3600.0  # seconds without a write after which a process on another host counts as ended


def write_bytes(path: Path, data: bytes) -> None:
    """Write data to a file, replacing its contents; folders are made as needed.

    A reader sees either all of the old data or all of the new, at any moment and after any crash.

    Raises:
        StoreError: If it cannot be written; the old contents stay.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_bytes(Path(folder) / "a" / "b", b"whole")
        ...     (Path(folder) / "a" / "b").read_bytes()
        b'whole'
    """
    temporary = temporary_name(path)
    try:
        make_folder(path.parent)
        try:
            with open(temporary, "xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        _flush_folder(path.parent)
    except OSError as error:
        raise StoreError(explain(path, error)) from error


def write_text(path: Path, text: str) -> None:
    """Write text to a file in UTF-8, as `write_bytes` does."""
    write_bytes(path, text.encode())


def make_folder(folder: Path) -> None:
    """Make a folder and those above it; each new name is flushed to disk."""
    if not folder.is_dir():
        if folder.parent != folder:
            make_folder(folder.parent)
        try:
            folder.mkdir(exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(
                errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)
            ) from None
        _flush_folder(folder.parent)


def temporary_name(path: Path) -> Path:
    """Return a name in the folder of `path` that names the writing process and its host."""
    return path.with_name(f"{path.name}.{_HOST}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether `temporary_name` made the name."""
    return _TEMPORARY.search(path.name) is not None


def is_abandoned(path: Path) -> bool:
    """Return whether a temporary file has no live writer.

    On this host the process is looked up. On other hosts, a file without a write for an hour counts
    as abandoned.
    """
    match = _TEMPORARY.search(path.name)
    if match is None:
        return False
    if match["host"] != _HOST:
        try:
            return time.time() - path.stat().st_mtime > _PATIENCE
        except OSError:
            return False  # renamed or removed in the meantime, so it had a writer
    try:
        os.kill(int(match["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def explain(path: Path, error: OSError) -> str:
    """Return one sentence that says what could not be written, why, and what to try."""
    if error.errno in _FULL:
        return f"cannot write {path}: the disk is full; free some space, or choose another folder."
    reason = (error.strerror or str(error)).lower()
    at = f" ({error.filename})" if error.errno == errno.ENOTDIR and error.filename else ""
    return f"cannot write {path}: {reason}{at}; choose a folder that can be written."


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
