"""The command line as a user meets it."""

import json
import subprocess
import sys

import pytest

from natgrad import __version__, cli
from natgrad.verify import _identity as registry
from natgrad.verify._identity import Identity


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "natgrad", *arguments], capture_output=True, text=True, check=False
    )


def test_verify_prints_every_identity_and_writes_json(tmp_path) -> None:
    file = tmp_path / "verify.json"
    done = run("verify", "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    records = json.loads(file.read_text())
    keys = {"id", "statement", "residual", "tolerance", "holds", "source", "seconds"}
    assert all(set(record) == keys for record in records)
    assert all(record["id"] in done.stdout and record["holds"] for record in records)


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
