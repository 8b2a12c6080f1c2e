"""One checksum for all files of arrays, over their names, dtypes, shapes and contents."""

import json
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import numpy.typing as npt

Raw = tuple[str, str, tuple[int, ...], bytes]
"""An array as its name, the name of its dtype, its shape and its bytes."""


DTYPES = {"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"}
"""The dtypes that files of arrays may hold, by NumPy's codes for kind and size."""


def digest(*texts: str) -> str:
    """Return a hash of a list of texts; different lists give different hashes."""
    hasher = sha256()
    for text in texts:
        raw = text.encode()
        hasher.update(f"{len(raw)}:".encode() + raw)
    return hasher.hexdigest()


def checksum(about: Mapping[str, Any], arrays: Iterable[Raw]) -> str:
    """Return a hash of arrays and of their metadata, whatever their order.

    Example:
        >>> one, two = ("x", "uint8", (2,), b"ab"), ("y", "uint8", (1,), b"c")
        >>> checksum({"a": 1}, [one, two]) == checksum({"a": 1}, [two, one])
        True
    """
    hasher = sha256(digest(json.dumps(about, sort_keys=True)).encode())
    for name, dtype, shape, data in sorted(arrays):
        hasher.update(digest(name, dtype, str(shape), str(len(data))).encode())
        hasher.update(data)
    return hasher.hexdigest()


def raw(arrays: Mapping[str, npt.NDArray[Any]]) -> list[Raw]:
    """Return NumPy arrays in the form that `checksum` takes."""
    return [(name, a.dtype.name, a.shape, a.tobytes()) for name, a in arrays.items()]


def verify(about: Mapping[str, Any], arrays: Iterable[Raw], *, now: str, before: str) -> None:
    """Raise a ValueError unless a file is as it was written.

    Args:
        about: The metadata of the file, with `format` and `checksum`.
        arrays: Its arrays.
        now: The format of files with a checksum.
        before: The format of files that never had one. A removed checksum is
            noticed, because the format says whether there was one.
    """
    rest = {name: value for name, value in about.items() if name != "checksum"}
    if about["format"] not in (now, before):
        raise ValueError(f"its format is {about['format']!r}, not {now!r}")
    if (about["format"] == now) != ("checksum" in about):
        raise ValueError("its format does not go with its checksum")
    if "checksum" in about and about["checksum"] != checksum(rest, arrays):
        raise ValueError("its checksum does not match its contents; it was changed or damaged")
