"""Results come back bit for bit, or not at all."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from natgrad.errors import InvalidInputError
from natgrad.lab._store import atomic
from natgrad.lab._store.atomic import (
    is_abandoned,
    is_temporary,
    temporary_name,
    write_bytes,
    write_text,
)
from natgrad.lab._store.store import (
    CorruptError,
    Identity,
    Store,
    StoreWarning,
    decode,
    encode,
    identify,
    shared,
)
from natgrad.lab.cell import Cell
from natgrad.lab.failures import StoreError
from tests.lab.toys import Draw, reduce

IDENTITY = Identity("module:function", '{"x":1.0}', "sources", "2.13.0")


def contents(value: float = 1.0) -> bytes:
    return encode(IDENTITY, {"y": np.array([value, 2.0]), "n": np.array(3)}, 0.25, "a label")


@pytest.mark.parametrize(
    "array",
    [
        np.array(1.5),
        np.zeros((0, 3)),
        np.arange(12.0).reshape(3, 4).T,
        np.arange(6, dtype=np.float32)[::-2],
        np.arange(3, dtype=">f8"),
        np.array([True, False]),
        np.array([-1, 2**62]),
        np.array([1, 255], dtype=np.uint8),
        np.array([np.nan, -np.inf, -0.0, 5e-324]),
        np.array([1.0, 2.0], dtype=np.float16),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)
def test_arrays_come_back_bit_for_bit_and_writable(array) -> None:
    back = decode(encode(IDENTITY, {"y": array}, 0.0, "")).arrays["y"]
    assert back.shape == array.shape
    assert back.dtype == array.dtype.newbyteorder("=")
    assert back.tobytes() == array.astype(back.dtype).tobytes()
    assert back.flags.writeable


def test_what_a_file_says_about_itself_comes_back() -> None:
    stored = decode(contents())
    assert (stored.identity, stored.seconds, stored.label) == (IDENTITY, 0.25, "a label")


@pytest.mark.parametrize("bad", [{"y": np.array(["text"])}, {"y": np.array([1j])}, 3.0, {1: 2.0}])
def test_results_other_than_numbers_by_name_are_refused(bad) -> None:
    with pytest.raises(InvalidInputError, match="a cell returns arrays"):
        encode(IDENTITY, bad, 0.0, "")


def test_every_flipped_bit_and_every_truncation_is_noticed() -> None:
    data = contents()
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            with pytest.raises(CorruptError):
                decode(bytes(damaged))
        with pytest.raises(CorruptError):
            decode(data[:position])


def test_every_part_of_the_identity_is_part_of_the_key() -> None:
    keys = {IDENTITY.key} | {
        replace(IDENTITY, **{name: "other"}).key
        for name in ("function", "config", "sources", "torch")
    }
    assert len(keys) == 5


def test_identity_of_a_cell_depends_on_its_config_but_not_on_its_label() -> None:
    cell = Cell(reduce, Draw(size=3, seed=1), "one")
    assert identify(cell).key == identify(replace(cell, label="other")).key
    assert identify(cell).key != identify(replace(cell, config=Draw(size=3, seed=2))).key
    assert identify(cell).key == identify(Cell(reduce, Draw(seed=1, size=3))).key


def test_put_and_get(store) -> None:
    assert store.get(IDENTITY.key) is None
    store.put(IDENTITY.key, contents())
    store.put(IDENTITY.key, contents(7.0))
    assert store.get(IDENTITY.key).arrays["y"][0] == 7.0
    assert store.path(IDENTITY.key) == store.root / IDENTITY.key[:2] / f"{IDENTITY.key}.safetensors"


def damage_flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)


def damage_truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_other(path: Path) -> None:
    path.write_bytes(encode(replace(IDENTITY, config="{}"), {"y": np.ones(1)}, 0.0, ""))


@pytest.mark.parametrize("damage", [damage_flip, damage_truncate, damage_empty, damage_other])
def test_a_damaged_file_is_set_aside_with_a_warning_and_not_deleted(store, damage) -> None:
    store.put(IDENTITY.key, contents())
    path = store.path(IDENTITY.key)
    damage(path)
    damaged = path.read_bytes()
    with pytest.warns(StoreWarning, match="set aside"):
        assert store.get(IDENTITY.key) is None
    (aside,) = path.parent.iterdir()
    assert aside.name.startswith(f"{path.name}.corrupt-")
    assert aside.read_bytes() == damaged
    assert store.get(IDENTITY.key) is None  # and without a second warning


def test_the_mark_tells_who_shares_the_store(store) -> None:
    with store.opened() as mark:
        assert shared(mark) == store.root
        assert shared(str(store.root / "elsewhere" / Path(mark).name)) is None
        Path(mark).write_bytes(b"the mark of another store of the same name")
        assert shared(mark) is None
    assert list(store.root.iterdir()) == []


def test_a_failed_write_leaves_what_was_there_and_nothing_else(store, monkeypatch) -> None:
    store.put(IDENTITY.key, contents())

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(StoreError, match=r"the disk is full; free some space") as caught:
        store.put(IDENTITY.key, contents(7.0))
    assert "\n" not in str(caught.value)
    assert os.listdir(store.path(IDENTITY.key).parent) == [store.path(IDENTITY.key).name]
    assert store.get(IDENTITY.key).arrays["y"][0] == 1.0


def test_an_interrupted_write_leaves_nothing(tmp_path, monkeypatch) -> None:
    def interrupt(handle: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(atomic.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "file", b"data")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_reported_in_one_sentence(tmp_path) -> None:
    write_text(tmp_path / "runs", "a file")
    with pytest.raises(StoreError, match="not a directory") as caught:
        Store(tmp_path / "runs" / "store").check()
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_reported_in_one_sentence(tmp_path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="permission denied"):
        Store(tmp_path / "store").check()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "natgrad", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("needs the right to mount a tmpfs")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_reported_in_one_sentence(small_disk) -> None:
    store = Store(small_disk / "store")
    store.check()
    store.put(IDENTITY.key, contents())
    (small_disk / "ballast").write_bytes(bytes(10 * 2**20))
    with pytest.raises(StoreError, match=r"only 1\d MB are free"):
        store.check()
    big = encode(replace(IDENTITY, config="big"), {"y": np.zeros(2 * 2**20)}, 0.0, "")
    with pytest.raises(StoreError, match="the disk is full"):
        store.put("ff" * 32, big)
    assert store.get("ff" * 32) is None
    assert not any(is_temporary(path) for path in store.root.rglob("*"))
    assert store.get(IDENTITY.key).arrays["y"][0] == 1.0


def test_a_read_only_disk_is_reported_in_one_sentence(small_disk) -> None:
    remount = ["mount", "-o", "remount,ro", str(small_disk)]
    if subprocess.run(remount, capture_output=True).returncode:
        pytest.skip("needs the right to remount a tmpfs")
    with pytest.raises(StoreError, match="read-only file system"):
        Store(small_disk / "store").check()


def test_temporary_files_are_abandoned_when_their_process_has_ended(tmp_path) -> None:
    mine = temporary_name(tmp_path / "file")
    ended = subprocess.Popen(["true"])
    ended.wait()
    parts = mine.name.split(".")
    parts[-3] = str(ended.pid)
    elsewhere = [*parts]
    elsewhere[-4] = "another-host"
    theirs, far = (mine.with_name(".".join(p)) for p in (parts, elsewhere))
    for path in (mine, theirs, far):
        path.touch()
    assert all(map(is_temporary, (mine, theirs, far)))
    assert [is_abandoned(path) for path in (mine, theirs, far)] == [False, True, False]
    os.utime(far, (1e9, 1e9))
    assert is_abandoned(far)
    assert not is_temporary(tmp_path / "notes.tmp")
