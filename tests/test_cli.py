"""The command line as a user meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from natgrad import __version__, cli
from natgrad.verify import _identity as registry
from natgrad.verify import identities
from natgrad.verify._identity import Identity

QUICK = {"kmh21/reduction", "kmh21/eq51", "blh18/eq19", "blh18/rank-one"}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "natgrad", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.slow  # each identity is checked in tests/directions/test_theorems.py
def test_verify_prints_every_identity_and_writes_json(tmp_path) -> None:
    file = tmp_path / "verify.json"
    done = run("verify", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    expect_identities(file, done.stdout)


def test_verify_prints_identities_and_writes_json(monkeypatch, tmp_path, capsys) -> None:
    chosen = [claim for claim in identities() if claim.id in QUICK]
    assert len(chosen) == len(QUICK)
    monkeypatch.setattr(registry, "_REGISTRY", chosen)
    file = tmp_path / "verify.json"
    assert cli.main(["verify", "--json", str(file)]) == 0
    printed = capsys.readouterr().out
    expect_identities(file, printed)
    assert f"{len(QUICK)} of {len(QUICK)} identities hold" in printed


def expect_identities(file: Path, printed: str) -> None:
    records = json.loads(file.read_text())
    assert [record["id"] for record in records] == [claim.id for claim in identities()]
    keys = {"id", "statement", "residual", "tolerance", "holds", "source", "seconds"}
    assert all(set(record) == keys for record in records)
    assert all(record["id"] in printed and record["holds"] for record in records)


def test_a_failing_identity_makes_verify_fail(monkeypatch, tmp_path, capsys) -> None:
    def broken() -> float:
        raise ArithmeticError("no number here")

    claims = [
        Identity("good", "0 is small", "nowhere", 1e-3, lambda: 0.0),
        Identity("bad", "1 is small", "nowhere", 1e-3, lambda: 1.0),
        Identity("nan", "NaN is small", "nowhere", 1e-3, lambda: float("nan")),
        Identity("broken", "errors are reported", "nowhere", 1e-3, broken),
    ]
    monkeypatch.setattr(registry, "_REGISTRY", claims)
    file = tmp_path / "verify.json"
    assert cli.main(["verify", "--json", str(file)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("FAILS") == 3
    assert "no number here" in printed
    assert [r["residual"] for r in json.loads(file.read_text())] == [0.0, 1.0, None, None]


def test_unwritable_json_is_found_before_the_work(capsys, tmp_path) -> None:
    assert cli.main(["verify", "--json", str(tmp_path / "no" / "file.json")]) == 2
    assert "no folder" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["verfy"], ["verify", "--jsn", "x"], []])
def test_bad_usage_exits_2(arguments) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_version() -> None:
    assert run("--version").stdout.strip() == f"natgrad {__version__}"
