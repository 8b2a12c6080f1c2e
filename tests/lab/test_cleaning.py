"""What may go, and what must stay."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from natgrad.lab._store.atomic import temporary_name
from natgrad.lab._store.cleaning import leftovers, remove
from natgrad.lab._store.store import Identity, Store, StoreWarning, encode, identify
from natgrad.lab.cell import Cell
from natgrad.lab.engines import Serial
from natgrad.lab.failures import StoreError
from natgrad.lab.sweep import Sweeper
from tests.lab.toys import Draw, reduce


def keep(store: Store, identity: Identity) -> Path:
    store.put(identity.key, encode(identity, {"y": np.ones(3)}, 0.1, ""))
    return store.path(identity.key)


def present(seed: int = 0) -> Identity:
    return identify(Cell(reduce, Draw(3, seed)))


def names(folder: Path) -> dict[str, str]:
    return {str(found.path): found.kind for found in leftovers(folder)}


def test_older_versions_of_an_up_to_date_result_are_superseded(store) -> None:
    new = keep(store, present())
    old = [
        keep(store, replace(present(), sources="older")),
        keep(store, replace(present(), torch="2.6.0")),
    ]
    assert names(store.root.parent) == {str(path): "superseded" for path in old}
    assert new.exists()


def test_older_versions_stay_while_there_is_no_newer_one(store) -> None:
    keep(store, replace(present(), sources="older"))
    keep(store, replace(present(), sources="oldest"))
    assert names(store.root) == {}


def test_results_of_other_options_are_never_superseded(store) -> None:
    keep(store, present(seed=0))
    keep(store, replace(present(seed=1), sources="older"))
    keep(store, replace(present(seed=0), function="tests.lab.toys:misbehave", sources="older"))
    assert names(store.root) == {}


def test_cells_that_cannot_be_imported_supersede_nothing(store) -> None:
    gone = replace(present(), function="natgrad.experiments.gone:run")
    keep(store, gone)
    keep(store, replace(gone, sources="older"))
    assert names(store.root) == {}


def test_a_damaged_new_version_supersedes_nothing(store) -> None:
    new = keep(store, present())
    keep(store, replace(present(), sources="older"))
    new.write_bytes(new.read_bytes()[:-1])
    assert names(store.root) == {}
    with pytest.warns(StoreWarning):
        store.get(present().key)
    (aside,) = new.parent.glob("*.corrupt-*")
    assert names(store.root) == {str(aside): "set aside"}


def test_only_temporary_files_without_a_writer_are_listed(tmp_path) -> None:
    figure = tmp_path / "toy-a"
    figure.mkdir()
    mine = temporary_name(figure / "report.json")
    mine.write_text("being written")
    child = subprocess.run(
        [sys.executable, "-c", "from natgrad.lab._store.atomic import *; import sys\n"
         "print(temporary_name(Path(sys.argv[1])))", str(figure / "config.toml")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    ended = Path(child.stdout.strip())
    ended.write_text("half writ")
    (figure / "notes.tmp").write_text("the user's own")
    assert socket.gethostname().replace(".", "_") in ended.name
    assert names(tmp_path) == {str(ended): "temporary"}


def test_a_sweep_under_way_is_left_alone(store) -> None:
    with store.opened() as mark:
        assert names(store.root) == {}
        assert Path(mark).exists()


def test_removing_frees_the_listed_files_and_no_others(store) -> None:
    Sweeper(Serial(), store)([Cell(reduce, Draw(3, 0)), Cell(reduce, Draw(3, 1))])
    old = keep(store, replace(present(), sources="older"))
    listed = leftovers(store.root)
    assert [found.bytes for found in listed] == [old.stat().st_size]
    assert old.exists()
    assert remove(listed) == listed[0].bytes
    assert not old.exists()
    assert leftovers(store.root) == []
    again = Sweeper(Serial(), store)
    again([Cell(reduce, Draw(3, 0)), Cell(reduce, Draw(3, 1))])
    assert again.reused == 2
    assert remove(listed) == listed[0].bytes  # gone already


@pytest.mark.skipif(os.geteuid() == 0, reason="root may remove everything")
def test_a_file_that_cannot_be_removed_is_reported(store) -> None:
    keep(store, present())
    old = keep(store, replace(present(), sources="older"))
    old.parent.chmod(0o500)
    with pytest.raises(StoreError, match="cannot remove"):
        remove(leftovers(store.root))


def test_a_folder_that_is_not_there_has_no_leftovers(tmp_path) -> None:
    assert leftovers(tmp_path / "runs") == []
