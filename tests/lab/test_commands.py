"""The laboratory's commands as a user types them, on toy experiments."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from natgrad import cli
from natgrad.errors import InvalidInputError
from natgrad.lab import registry
from natgrad.lab._store.folder import RunFolder
from natgrad.lab._store.store import Store, StoreWarning
from natgrad.lab.arrays import Arrays
from natgrad.lab.engines import Serial
from natgrad.lab.sweep import Sweeper
from tests.lab import toys

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def only_toys(monkeypatch):
    """Two toy experiments and no others, wherever this module was imported before."""
    monkeypatch.setattr(registry, "_EXPERIMENTS", {"toy/a": toys.A, "toy/b": toys.B})


@pytest.fixture
def reproduce(tmp_path):
    """`natgrad reproduce … --engine serial --out tmp_path`."""

    def run(*arguments: str) -> int:
        return cli.main(["reproduce", *arguments, "--engine", "serial", "--out", str(tmp_path)])

    return run


def test_a_run_leaves_the_files_and_keys_of_the_contract(reproduce, tmp_path, capsys):
    assert reproduce("toy/a", "--preset", "smoke") == 0
    folder = tmp_path / "toy-a"
    names = {"config.toml", "report.json", "arrays.safetensors", "figure.png", "figure.pdf"}
    assert names <= {path.name for path in folder.iterdir()}
    report = json.loads((folder / "report.json").read_text())
    assert {"figure", "preset", "seconds", "seeds", "claims", "departures"} <= set(report)
    assert {"environment", "revision"} <= set(report)
    assert report["figure"] == "toy/a"
    assert report["preset"] == "smoke"
    assert report["seeds"] == 2
    claim_keys = "id statement value sd n relation bound holds expected source"
    assert [set(claim) for claim in report["claims"]] == [set(claim_keys.split())]
    printed = capsys.readouterr().out
    assert "holds" in printed
    assert str(tmp_path / "report.html") in printed.replace("\n", "")
    assert (tmp_path / "report.html").is_file()


def test_a_second_run_reuses_every_cell_and_gives_the_same_bits(reproduce, tmp_path):
    assert reproduce("toy/a") == 0
    first = (tmp_path / "toy-a" / "arrays.safetensors").read_bytes()
    assert reproduce("toy/a") == 0
    report = RunFolder(tmp_path / "toy-a").report()
    assert report["cells"] == {"done": 3, "reused": 3}
    assert (tmp_path / "toy-a" / "arrays.safetensors").read_bytes() == first
    assert reproduce("toy/a", "--fresh") == 0
    assert RunFolder(tmp_path / "toy-a").report()["cells"]["reused"] == 0
    assert (tmp_path / "toy-a" / "arrays.safetensors").read_bytes() == first


def test_every_field_of_the_config_is_an_option(reproduce, tmp_path):
    assert reproduce("--preset", "paper", "--size=20", "toy/a", "--seeds", "2") == 0
    folder = RunFolder(tmp_path / "toy-a")
    assert folder.config(toys.Toy) == replace(toys.PRESETS["paper"], size=20, seeds=2)
    report = folder.report()
    assert report["options"] == {"size": 20, "seeds": 2}
    assert [claim["holds"] for claim in report["claims"]] == [None]  # bounds are for presets
    assert folder.arrays()["singular"].shape == (2, 20)


@pytest.mark.parametrize(
    ("typed", "size"),
    [(["--preset=paper"], 60), (["--preset", "smoke", "--preset", "paper"], 60), ([], 30)],
)
def test_the_preset_gives_the_other_options_their_defaults(reproduce, tmp_path, typed, size):
    assert reproduce("toy/a", *typed, "--seeds", "1") == 0
    folder = RunFolder(tmp_path / "toy-a")
    assert folder.config(toys.Toy) == toys.Toy(size=size, seeds=1)
    assert folder.report()["preset"] == ("paper" if typed else "quick")


def test_no_name_means_all_figures(reproduce, tmp_path):
    assert reproduce("--preset", "smoke") == 0
    assert (tmp_path / "toy-a" / "report.json").is_file()
    assert (tmp_path / "toy-b" / "report.json").is_file()


def test_json_stands_alone_on_standard_output(reproduce, capsys):
    assert reproduce("toy/a", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["reports"][0]["figure"] == "toy/a"
    assert summary["failures"] == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["toy/x"], "Did you mean toy/a?|Did you mean toy/b?"),
        (["zzz"], "natgrad list"),
        (["toy/a", "--preset", "large"], "one of smoke, quick, paper"),
        (["toy/a", "--seds", "3"], "--seeds"),
        (["toy/a", "--seeds", "three"], "--seeds"),
        (["toy/a", "toy/b", "--seeds", "3"], "one FIGURE"),
        (["toy/a", "--scheduler", "tcp://here:1"], "engine dask"),
    ],
    ids=str,
)
def test_bad_usage_gets_a_sentence_and_exit_2(reproduce, capsys, arguments, sentence):
    assert reproduce(*arguments) == 2
    message = capsys.readouterr().err
    assert any(part in message for part in sentence.split("|"))
    assert "Traceback" not in message


@pytest.mark.parametrize("before", [[], ["toy/a"]])
def test_a_mistyped_name_behind_an_option_runs_nothing(reproduce, tmp_path, capsys, before):
    assert reproduce(*before, "--preset", "smoke", "toy/bb") == 2
    assert "Did you mean toy/b?" in capsys.readouterr().err
    assert not (tmp_path / "toy-a").exists()


def test_a_claim_that_comes_out_otherwise_exits_1(reproduce, monkeypatch, capsys):
    def claims(config, arrays):
        return [replace(toys.claims(config, arrays)[0], relation="<=", bound=0.0)]

    monkeypatch.setitem(registry._EXPERIMENTS, "toy/a", replace(toys.A, claims=claims))
    assert reproduce("toy/a") == 1
    assert "FAILS" in capsys.readouterr().out


def test_a_refuted_statement_of_the_paper_is_as_expected(reproduce, monkeypatch, capsys):
    def claims(config, arrays):
        return [replace(toys.claims(config, arrays)[0], relation="<=", bound=0.0, expected=False)]

    monkeypatch.setitem(registry._EXPERIMENTS, "toy/a", replace(toys.A, claims=claims))
    monkeypatch.setenv("COLUMNS", "120")  # room for the verdict on one line
    assert reproduce("toy/a") == 0
    assert "refutes the paper (documented)" in " ".join(capsys.readouterr().out.split())


def test_failed_cells_exit_3_keep_the_others_and_the_older_result(reproduce, tmp_path, capsys):
    assert reproduce("toy/a") == 0
    before = (tmp_path / "toy-a" / "report.json").read_bytes()
    assert reproduce("toy/a", "--trouble", "exception") == 3
    assert (tmp_path / "toy-a" / "report.json").read_bytes() == before
    (failure,) = RunFolder(tmp_path / "toy-a").failures()
    assert failure["kind"] == "exception"
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert reproduce("toy/a") == 0
    assert RunFolder(tmp_path / "toy-a").failures() == []


def test_a_folder_that_cannot_be_made_exits_2(tmp_path, capsys):
    (tmp_path / "file").touch()
    out = str(tmp_path / "file" / "runs")
    assert cli.main(["reproduce", "toy/a", "--engine", "serial", "--out", out]) == 2
    message = capsys.readouterr().err
    assert "not a directory" in message
    assert message.count("\n") == 1


def test_draw_makes_the_same_picture_without_computing(reproduce, tmp_path, monkeypatch):
    assert reproduce("toy/a") == 0
    folder = tmp_path / "toy-a"
    before = (folder / "figure.png").read_bytes()
    (folder / "figure.png").unlink()
    monkeypatch.setattr(toys, "reduce", None)
    assert cli.main(["draw", str(folder)]) == 0
    assert (folder / "figure.png").read_bytes() == before


def test_draw_shows_the_arrays_that_are_there(reproduce, tmp_path):
    assert reproduce("toy/a") == 0
    folder = tmp_path / "toy-a"
    before = (folder / "figure.png").read_bytes()
    changed = Arrays(seed=[0])
    changed.add("singular", np.ones((1, 4)), "seed", "index")
    changed.save(folder / "arrays.safetensors")
    assert cli.main(["draw", str(folder)]) == 0
    assert (folder / "figure.png").read_bytes() != before


def test_draw_and_report_of_no_folder_get_a_sentence(tmp_path, capsys):
    assert cli.main(["draw", str(tmp_path / "none")]) == 2
    assert cli.main(["report", str(tmp_path / "none")]) == 2
    assert capsys.readouterr().err.count("natgrad: ") == 2


def test_list_shows_figures_and_minutes(capsys):
    assert cli.main(["list"]) == 0
    printed = capsys.readouterr().out
    assert "toy/a" in printed
    assert "0.02" in printed
    assert cli.main(["list", "--json"]) == 0
    assert [entry["figure"] for entry in json.loads(capsys.readouterr().out)] == ["toy/a", "toy/b"]


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)]
)
def test_an_interruption_keeps_finished_cells_and_says_how_to_go_on(tmp_path, number):
    command = [sys.executable, "-m", "tests.lab.toys", "reproduce", "toy/a", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*command, "--workers", "1", "--seeds", "400", "--pause", "0.02"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    store = tmp_path / "store"
    while len(list(store.glob("*/*.safetensors"))) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    asked = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert time.monotonic() - asked < 10  # two seconds on a machine that has nothing else to do
    assert "continues from there" in errors
    assert "Traceback" not in errors
    kept = len(list(store.glob("*/*.safetensors")))
    assert kept >= 3
    arguments = ["toy/a", "--engine", "serial", "--out", str(tmp_path), "--seeds", "4"]
    assert cli.main(["reproduce", *arguments, "--pause", "0.02"]) == 0
    assert RunFolder(tmp_path / "toy-a").report()["cells"]["reused"] >= 3


def test_clean_lists_and_removes_only_when_told(reproduce, tmp_path, capsys):
    assert reproduce("toy/a") == 0
    results = set((tmp_path / "store").glob("*/*.safetensors"))
    victim = min(results)
    victim.write_bytes(victim.read_bytes()[:-1])
    with pytest.warns(StoreWarning, match="set aside"):
        assert reproduce("toy/a") == 0
    capsys.readouterr()
    assert cli.main(["clean", str(tmp_path)]) == 0
    listed = capsys.readouterr().out
    assert "set aside" in listed
    (aside,) = (tmp_path / "store").glob("*/*.corrupt-*")
    assert cli.main(["clean", str(tmp_path), "--yes"]) == 0
    assert "removed 1 files" in capsys.readouterr().out
    assert not aside.exists()
    assert set((tmp_path / "store").glob("*/*.safetensors")) == results
    assert cli.main(["clean", str(tmp_path)]) == 0
    assert "nothing" in capsys.readouterr().out
    assert cli.main(["clean", str(tmp_path / "none")]) == 2


@pytest.mark.parametrize("seconds", ["-1", "0", "nan", "inf", "-inf"])
def test_a_timeout_that_is_no_time_is_bad_usage(seconds, reproduce, tmp_path, capsys):
    assert reproduce("toy/a", "--preset", "smoke", f"--timeout={seconds}") == 2
    printed = capsys.readouterr().err
    assert printed.startswith("natgrad: timeout must be a number above 0")
    assert printed.count("\n") == 1
    assert not list(tmp_path.iterdir())  # nothing was started


@pytest.mark.parametrize("timeout", [-1, 0, float("nan"), float("inf"), "1", True, [1.0], 10**400])
def test_sweepers_refuse_such_timeouts_too(timeout, tmp_path):
    with pytest.raises(InvalidInputError, match="timeout must be a number above 0"):
        Sweeper(Serial(), Store(tmp_path), timeout=timeout)
