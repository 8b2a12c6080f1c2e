"""Files that are whole or absent, also after a crash: write aside, flush, rename."""

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
_PATIENCE = 3600.0  # seconds; a process elsewhere that has not written for so long is gone


def write_bytes(path: Path, data: bytes) -> None:
    """Put data under a name, replacing what was there; folders are made as needed.

    Whoever reads the name, at any moment and after any crash, sees all of the old data or all of
    the new.

    Raises:
        StoreError: If it cannot be written; what was there is untouched.

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
    """Put text under a name, in UTF-8, as `write_bytes` does."""
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
    """Return a name beside `path` that says which process of which host writes there."""
    return path.with_name(f"{path.name}.{_HOST}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether the name is one that `temporary_name` makes."""
    return _TEMPORARY.search(path.name) is not None


def is_abandoned(path: Path) -> bool:
    """Return whether a temporary file has no live writer.

    Its process is looked up when it is of this host; elsewhere an hour of silence decides.
    """
    match = _TEMPORARY.search(path.name)
    if match is None:
        return False
    if match["host"] != _HOST:
        try:
            return time.time() - path.stat().st_mtime > _PATIENCE
        except OSError:
            return False  # renamed or removed meanwhile: it did have a writer
    try:
        os.kill(int(match["pid"]), 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    return False


def explain(path: Path, error: OSError) -> str:
    """Return one sentence: what could not be written, why, and what to try."""
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
