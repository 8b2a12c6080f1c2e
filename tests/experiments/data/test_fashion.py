"""Fashion-MNIST from folders: whole, gzipped, incomplete, broken."""

import gzip
import hashlib

import pytest
import torch

from natgrad.experiments._data import fashion


def idx(tensor: torch.Tensor) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in tensor.shape)
    return bytes([0, 0, 8, tensor.ndim]) + sizes + tensor.numpy().tobytes()


@pytest.fixture
def files(monkeypatch) -> dict[str, bytes]:
    """Four small files in the right format, whose sums pass for the real ones."""
    pixels = torch.randint(
        256, (3, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0)
    )
    labels = torch.tensor([3, 1, 2], dtype=torch.uint8)
    found = {name: idx(pixels if "images" in name else labels) for name in fashion.SUMS}
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
    monkeypatch.setattr(fashion, "SUMS", sums)
    return found


@pytest.mark.parametrize("packed", [False, True])
def test_a_folder(files, tmp_path, packed):
    for name, data in files.items():
        path = tmp_path / (f"{name}.gz" if packed else name)
        path.write_bytes(gzip.compress(data) if packed else data)
    clothes = fashion.load(tmp_path)
    assert clothes.train_labels.tolist() == [3, 1, 2]
    assert clothes.test_images.shape == (3, 784)
    assert clothes.train_images.dtype == torch.float32
    raw = torch.frombuffer(bytearray(files["train-images-idx3-ubyte"]), dtype=torch.uint8)[16:]
    assert torch.equal((255 * clothes.train_images).round().byte().flatten(), raw)


def test_a_missing_file_is_named(files, tmp_path):
    with pytest.raises(fashion.FashionUnavailableError, match="neither train-images-idx3-ubyte"):
        fashion.load(tmp_path)


def test_another_file_is_refused(files, tmp_path):
    for name, data in files.items():
        (tmp_path / name).write_bytes(data[:-1] + b"?")
    with pytest.raises(fashion.FashionUnavailableError, match="checksum"):
        fashion.load(tmp_path)


def test_a_broken_archive_is_refused(files, tmp_path):
    for name, data in files.items():
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(data)[:40])
    with pytest.raises(fashion.FashionUnavailableError, match="cannot be read"):
        fashion.load(tmp_path)


@pytest.mark.skipif(not fashion.DEBIAN.is_dir(), reason="Debian's package is not installed")
def test_the_package():
    clothes = fashion.load()
    assert clothes.train_images.shape == (60_000, 784)
    assert torch.bincount(clothes.test_labels).tolist() == [1000] * 10
