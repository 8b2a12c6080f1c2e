"""Results on disk: one file per cell, named by a hash of all that it depends on, always checked."""

import json
import shutil
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import load, save

from natgrad._checks import describe, instance
from natgrad._checks import path as as_path
from natgrad._checksum import DTYPES, checksum, digest, raw
from natgrad.errors import InvalidInputError, NatgradError
from natgrad.lab._store.atomic import explain, temporary_name, write_bytes
from natgrad.lab._store.sources import fingerprint
from natgrad.lab.cell import Cell, Result, canonical
from natgrad.lab.failures import StoreError

_FORMAT = "natgrad cell 1"
_SPARE = 16 * 2**20  # bytes that must be free before a sweep starts


class StoreWarning(UserWarning):
    """A stored file failed its checksum and was set aside."""


class CorruptError(NatgradError, ValueError):
    """A stored file is damaged, or does not belong to this store."""


@dataclass(frozen=True)
class Identity:
    """Everything that the result of a cell depends on.

    Attributes:
        function: `module:function`.
        config: Canonical text of the config.
        sources: Hash of the sources that the function depends on.
        torch: Version of torch.
    """

    function: str
    config: str
    sources: str
    torch: str

    @property
    def key(self) -> str:
        """Return the name of the result in the store."""
        return digest(self.function, self.config, self.sources, self.torch)


def identify(cell: Cell, sources: str | None = None) -> Identity:
    """Return the identity of a cell in this process; `sources` is their hash, if it is known."""
    instance(cell, "a cell", Cell)
    sources = fingerprint(cell.function) if sources is None else sources
    return Identity(cell.name, canonical(cell.config), sources, str(torch.__version__))


@dataclass(frozen=True)
class Stored:
    """A result read from the store: arrays, identity, seconds of computation, and label."""

    arrays: Result
    identity: Identity
    seconds: float
    label: str


def encode(identity: Identity, result: Result, seconds: float, label: str) -> bytes:
    """Return the contents of a file: arrays, their identity, and a checksum over both.

    Raises:
        InvalidInputError: If the result does not map names to arrays of numbers.

    Example:
        >>> identity = Identity("m:f", "{}", "0", "2.13.0")
        >>> data = encode(identity, {"y": np.arange(3.0)}, 0.1, "a label")
        >>> decode(data).arrays["y"], decode(data).label
        (array([0., 1., 2.]), 'a label')
    """
    arrays = _numbers(result)
    about = {**asdict(identity), "seconds": seconds, "label": label, "format": _FORMAT}
    text = json.dumps({**about, "checksum": checksum(about, raw(arrays))}, sort_keys=True)
    return save(arrays, metadata={"natgrad": text})


def decode(data: bytes) -> Stored:
    """Return the result that `encode` wrote.

    Raises:
        CorruptError: If anything has changed.
    """
    try:
        length = int.from_bytes(data[:8], "little")
        about = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["natgrad"])
        written = about.pop("checksum")
        # Sorted, because safetensors returns names in an order that changes from call to call.
        arrays = {name: np.array(array) for name, array in sorted(load(data).items())}
        identity = Identity(*(about[name] for name in ("function", "config", "sources", "torch")))
        stored = Stored(arrays, identity, about["seconds"], about["label"])
        sound = about["format"] == _FORMAT and written == checksum(about, raw(arrays))
    except Exception as error:  # safetensors raises its own exception class and does not export it
        reason = " ".join(str(error).split())
        raise CorruptError(f"it cannot be read: {type(error).__name__}: {reason}") from error
    if not sound:
        raise CorruptError("its checksum does not match its contents")
    return stored


class Store:
    """A folder of results.

    Any number of processes, on any number of machines that share the folder, may read and write it
    at once, because a file appears only when it is complete, and its name identifies its contents.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     store = Store(Path(folder))
        ...     identity = Identity("m:f", "{}", "0", "2.13.0")
        ...     store.put(identity.key, encode(identity, {"y": np.ones(2)}, 0.1, ""))
        ...     store.get(identity.key).arrays["y"]
        array([1., 1.])
    """

    def __init__(self, root: Path) -> None:
        self.root = as_path(root, "the path").absolute()

    def path(self, key: str) -> Path:
        """Return the path of the result with a key, whether it exists or not."""
        instance(key, "the key", str)
        return self.root / key[:2] / f"{key}.safetensors"

    def put(self, key: str, data: bytes) -> None:
        """Store the contents of a file under a key.

        Raises:
            StoreError: If it cannot be written.
        """
        write_bytes(self.path(key), data)

    def get(self, key: str) -> Stored | None:
        """Return the result with a key; None if there is no valid one.

        A file that fails its checksum, or holds the result of another cell, is renamed with a
        warning, and never deleted.

        Raises:
            StoreError: If the file exists but cannot be read.
        """
        path = self.path(key)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot read {path}: {(error.strerror or '').lower()}.") from error
        try:
            stored = decode(data)
            if stored.identity.key != key:
                raise CorruptError("it holds the result of another cell")
        except CorruptError as error:
            self._set_aside(path, error)
            return None
        return stored

    def _set_aside(self, path: Path, why: CorruptError) -> None:
        aside = path.with_name(f"{path.name}.corrupt-{time.time_ns():x}")
        try:
            path.rename(aside)
        except FileNotFoundError:
            return  # another process was faster
        except OSError as error:
            raise StoreError(explain(aside, error)) from error
        warnings.warn(
            f"{path} was set aside as {aside.name} and is computed again: {why}.",
            StoreWarning,
            stacklevel=3,
        )

    @contextmanager
    def opened(self) -> Iterator[str]:
        """Check that results can be written, and yield the path of a mark beside them.

        A worker that finds the mark shares the store and writes its results there.

        Raises:
            StoreError: If the folder cannot be written, or has less than 16 MB left.
        """
        mark = temporary_name(self.root / "open")
        self.check()
        write_bytes(mark, mark.name.encode())
        try:
            yield str(mark)
        finally:
            mark.unlink(missing_ok=True)

    def check(self) -> None:
        """Check that results can be written.

        Raises:
            StoreError: If not.
        """
        probe = temporary_name(self.root / "probe")
        write_bytes(probe, b"probe")
        try:
            probe.unlink()
            free = shutil.disk_usage(self.root).free
        except OSError as error:
            raise StoreError(explain(self.root, error)) from error
        if free < _SPARE:
            raise StoreError(
                f"only {free / 2**20:.0f} MB are free in {self.root}, but a sweep needs "
                f"{_SPARE // 2**20} MB to start; free some space, or choose another folder."
            )


def shared(mark: str) -> Path | None:
    """Return the root of the store if this process sees its mark; otherwise None."""
    path = Path(mark)
    try:
        return path.parent if path.read_bytes() == path.name.encode() else None
    except OSError:
        return None


def _numbers(result: Any) -> dict[str, npt.NDArray[Any]]:
    if not isinstance(result, Mapping) or not all(isinstance(name, str) for name in result):
        raise InvalidInputError(
            f"a cell returns arrays by name, as in {{'loss': array}}, not {type(result).__name__}."
        )
    arrays = {}
    for name in sorted(result):
        try:
            array = np.asarray(result[name], order="C")
        except (TypeError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"a cell returns arrays by name, but {name!r} is {describe(result[name])}."
            ) from error
        if array.dtype.str[1:] not in DTYPES:
            raise InvalidInputError(
                f"a cell returns arrays of real numbers or booleans, but {name!r} has dtype "
                f"{array.dtype}; split or convert it."
            )
        arrays[name] = array.astype(array.dtype.newbyteorder("="), copy=False)
    return arrays
