"""Fashion-MNIST: small pictures of clothes, in the format of MNIST.

Debian's package dataset-fashion-mnist carries the four files; nothing is fetched here.
"""

import gzip
import hashlib
import zlib
from pathlib import Path

from natgrad._checks import path as check_path
from natgrad.data.mnist import Mnist, parse_idx
from natgrad.errors import InvalidInputError

SUMS = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
"""Where Debian's package puts the files."""


class FashionUnavailableError(InvalidInputError):
    """The four files are missing, or have other contents."""


def load(folder: Path | None = None) -> Mnist:
    """Return Fashion-MNIST: images as rows of 784 numbers in [0, 1], and labels 0…9.

    Args:
        folder: Where the four idx files are, gzipped or not. Default: where Debian's package has
            them.

    Raises:
        FashionUnavailableError: If a file is missing, broken, or fails its checksum.

    Example:
        >>> try:
        ...     load(Path("nowhere"))
        ... except FashionUnavailableError as error:
        ...     print(error)
        there is no folder nowhere with Fashion-MNIST; install Debian's package
        dataset-fashion-mnist, or name a folder with its four idx files.
    """
    folder = DEBIAN if folder is None else check_path(folder, "folder")
    if not folder.is_dir():
        raise FashionUnavailableError(
            f"there is no folder {folder} with Fashion-MNIST; install Debian's package "
            "dataset-fashion-mnist, or name a folder with its four idx files."
        )
    files = {name: parse_idx(_read(folder, name)) for name in SUMS}
    return Mnist(
        files["train-images-idx3-ubyte"].flatten(1).float() / 255,
        files["train-labels-idx1-ubyte"].long(),
        files["t10k-images-idx3-ubyte"].flatten(1).float() / 255,
        files["t10k-labels-idx1-ubyte"].long(),
    )


def _read(folder: Path, name: str) -> bytes:
    plain, packed = folder / name, folder / f"{name}.gz"
    try:
        data = plain.read_bytes() if plain.is_file() else gzip.decompress(packed.read_bytes())
    except FileNotFoundError as error:
        raise FashionUnavailableError(f"{folder} has neither {name} nor {name}.gz.") from error
    except (OSError, EOFError, zlib.error) as error:
        raise FashionUnavailableError(f"{packed} cannot be read: {error}.") from error
    if hashlib.sha256(data).hexdigest() != SUMS[name]:
        raise FashionUnavailableError(
            f"{folder / name} does not have the checksum of Fashion-MNIST's file."
        )
    return data
