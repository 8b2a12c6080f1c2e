"""The command line as a user meets it."""

import json
import re
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


HEAVY = ("matplotlib", "numpy", "safetensors", "scipy", "torch")


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["reprodcue"], 2),
        (["list"], 0),
        (["list", "--json"], 0),
        *(([command, "--help"], 0) for command in cli.COMMANDS),
        (["reproduce", "kmh21/fig4", "--help"], 0),
        (["reproduce", "kmh21/fig4", "--sedes", "3"], 2),
        (["reproduce", "kmh21/fgi4"], 2),
        (["reproduce", "kmh21/fig4", "--preset", "large"], 2),
        (["verify", "--jsn", "x"], 2),
        (["compare", "table.csv", "--lable", "y"], 2),
    ],
    ids=str,
)
def test_nothing_heavy_is_imported_before_there_is_something_to_compute(
    arguments, exit_code
) -> None:
    code = (
        "import sys; from natgrad.cli import main; code = main(sys.argv[1:]); "
        f"print('heavy:', [name for name in {HEAVY} if name in sys.modules]); sys.exit(code)"
    )
    done = python(code, *arguments)
    assert done.returncode == exit_code, done.stderr
    assert done.stdout.splitlines()[-1] == "heavy: []"
    assert "Traceback" not in done.stderr


def test_reproduce_imports_the_named_figure_alone() -> None:
    code = (
        "import sys; from natgrad.cli import main; main(['reproduce', 'kmh21/fig4', '--help']); "
        "print(*sorted(m for m in sys.modules if m.startswith('natgrad.experiments.')))"
    )
    imported = python(code).stdout.splitlines()[-1].split()
    assert "natgrad.experiments.kmh21.fig4.config" in imported
    assert not [name for name in imported if re.search("blh18|fig[^4]|compare|complete|race", name)]


BLOCKED = (
    "import sys\n"
    "for name in ('jinja2', 'matplotlib', 'rich', 'threadpoolctl', 'tyro'):\n"
    "    sys.modules[name] = None\n"
)
TO_INSTALL = 'pip install "natgrad[lab]"'


@pytest.mark.parametrize("arguments", [["list"], ["reproduce", "--help"], ["verify"], ["x"], []])
def test_without_the_extra_every_command_says_what_to_install(arguments) -> None:
    done = python(
        f"{BLOCKED}from natgrad.cli import main; sys.exit(main(sys.argv[1:]))", *arguments
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("natgrad: ")
    assert TO_INSTALL in done.stderr.splitlines()[-1]
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 or not arguments  # nothing typed: the usage comes first


def test_without_the_extra_help_and_version_still_answer() -> None:
    for option, said in (("--help", "usage: natgrad"), ("--version", __version__)):
        done = python(f"{BLOCKED}from natgrad.cli import main; sys.exit(main(['{option}']))")
        assert done.returncode == 0
        assert said in done.stdout


def test_without_the_extra_the_core_works_and_the_rest_says_what_to_install() -> None:
    code = (
        "import natgrad as ng, torch\n"
        "from natgrad import *\n"
        "from natgrad.errors import NatgradError\n"
        "batch = torch.eye(3).double(), torch.ones(3).double()\n"
        "print(ng.natural(ng.Bernoulli(), ng.Direct(), torch.zeros(3).double(), batch).shape)\n"
        "for name in ng.__all__: getattr(ng, name)\n"
        "for function in (ng.compare, ng.complete):\n"
        "    try: function([[1.0]], [1])\n"
        "    except NatgradError as error: print(isinstance(error, ImportError), error)\n"
    )
    done = python(BLOCKED + code)
    assert done.returncode == 0, done.stderr
    shape, *errors = done.stdout.splitlines()
    assert shape == "torch.Size([3])"
    assert len(errors) == 2
    assert all(error.startswith("True ") and TO_INSTALL in error for error in errors)


def test_version() -> None:
    assert run("--version").stdout.strip() == f"natgrad {__version__}"


def test_a_reader_that_goes_away_gets_no_traceback() -> None:
    shown = subprocess.Popen(
        [sys.executable, "-m", "natgrad", "playground", "--no-show"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert shown.stdout is not None
    shown.stdout.close()  # as `| head` does when it has seen enough
    _, complaint = shown.communicate()
    assert shown.returncode == 1
    assert complaint == b""
