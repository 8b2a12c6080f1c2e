"""`natgrad compare` and `natgrad complete` as a user types them."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import natgrad as ng
from natgrad import cli
from natgrad.errors import InvalidInputError
from natgrad.experiments.compare import config as compare_config
from natgrad.experiments.complete import config as complete_config
from natgrad.lab._store.folder import RunFolder

HOW = ("--engine", "serial", "--quiet")


@pytest.fixture
def labeled(tmp_path):
    """A table of two classes that one feature separates."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(40, 2, generator=generator, dtype=torch.float64)
    lines = [f"{a!r},{b!r},{'ill' if a > 0 else 'well'}" for a, b in x.tolist()]
    path = tmp_path / "patients.csv"
    path.write_text("\n".join(["dose,age,state", *lines]))
    return path


@pytest.fixture
def triples(tmp_path):
    """Three quarters of a matrix of rank one."""
    lines = [f"u{i},f{j},{(i + 1) * (j + 2)}" for i in range(12) for j in range(9) if (i + j) % 4]
    path = tmp_path / "ratings.csv"
    path.write_text("\n".join(["user,film,stars", *lines]))
    return path


def compare(path, out, *more):
    few = ("--depths", "1", "2", "--until", "100", "--folds", "2")
    return cli.main(
        ["compare", str(path), "--label", "state", "--out", str(out), *HOW, *few, *more]
    )


def test_compare_prints_and_leaves_the_files_of_any_figure(labeled, tmp_path, capsys):
    assert compare(labeled, tmp_path / "runs") == 0
    printed = capsys.readouterr().out
    assert "The data are separable" in printed
    assert "EGD L=2" in printed
    folder = tmp_path / "runs" / "compare-patients"
    names = {"config.toml", "report.json", "arrays.safetensors", "figure.png", "figure.pdf"}
    assert names <= {path.name for path in folder.iterdir()}
    page = (tmp_path / "runs" / "report.html").read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page))
    assert f"natgrad compare {labeled} --label state" in text
    (folder / "figure.png").unlink()
    assert cli.main(["draw", str(folder)]) == 0
    assert (folder / "figure.png").is_file()


def test_compare_for_machines(labeled, tmp_path, capsys):
    assert compare(labeled, tmp_path / "runs", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figure"] == "compare/patients"
    assert told["comparison"]["kind"] == "separable"
    methods = told["comparison"]["methods"]
    assert set(methods["EGD L=1"]) >= {"accuracy", "interval", "margin", "angles"}


def test_complete_saves_the_matrix(triples, tmp_path, capsys):
    arguments = ["complete", str(triples), "--preset", "smoke", "--out", str(tmp_path / "runs")]
    assert cli.main([*arguments, *HOW]) == 0
    printed = capsys.readouterr().out
    assert "root mean squared error" in printed
    folder = tmp_path / "runs" / "complete-ratings"
    assert str(folder / "completed.csv") in printed
    assert len((folder / "completed.csv").read_text().splitlines()) == 13
    assert RunFolder(folder).report()["command"][:2] == ["natgrad", "complete"]
    (folder / "figure.png").unlink()
    assert cli.main(["draw", str(folder)]) == 0
    assert (folder / "figure.png").is_file()
    assert cli.main([*arguments, *HOW, "--json"]) == 0
    told = json.loads(capsys.readouterr().out.partition("{")[2].join(["{", ""]))
    assert told["cells"]["reused"] == told["cells"]["done"]
    assert told["completed"]["shape"] == [12, 9]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["compare", "gone.csv", "--label", "y"], "there is no file gone.csv"),
        (["complete", "gone.csv"], "there is no file gone.csv"),
        (["compare", "{labeled}", "--label", "stat"], "Did you mean 'state'?"),
        (["compare", "{labeled}", "--label", "state", "--folds", "1"], "folds must be an integer"),
        (["complete", "{labeled}"], "natgrad: "),
    ],
)
def test_bad_input_gets_a_sentence(command, said, labeled, tmp_path, capsys):
    words = [word.replace("{labeled}", str(labeled)) for word in command]
    assert cli.main([*words, *HOW, "--out", str(tmp_path / "runs")]) == 2
    complaint = capsys.readouterr().err.strip()
    assert said in complaint
    assert "Traceback" not in complaint


def test_test_entries_among_the_data_are_not_judged_by(triples, tmp_path, capsys):
    lines = triples.read_text().splitlines()
    test = tmp_path / "test.csv"
    test.write_text("\n".join([lines[0], *lines[1:5], "u0,f0,2", "u0,,3"]))
    arguments = ["complete", str(triples), "--preset", "smoke", "--out", str(tmp_path / "runs")]
    assert cli.main([*arguments, *HOW, "--test", str(test)]) == 0
    printed = capsys.readouterr().out
    assert "4 test entries are among the data and were left out." in printed
    assert "on 1 test entries" in printed
    test.write_text("\n".join(lines[:5]))
    assert cli.main([*arguments, *HOW, "--force", "--test", str(test)]) == 2
    assert "no test entry is left" in capsys.readouterr().err


def test_data_frames_are_matched_by_name_and_labels_are_those_of_the_call():
    pandas = pytest.importorskip("pandas")
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 3, generator=generator, dtype=torch.float64).numpy()
    frame = pandas.DataFrame(x, columns=["a", "b", "c"]).assign(word="text")
    y = (x[:, 0] > 0).astype(int)
    few = {"depths": (1,), "until": 100.0, "folds": 2}
    seen = [
        ng.compare(frame[:40], y[:40], test=(frame[names][40:], y[40:]), **few)
        for names in (["a", "b", "c"], ["c", "word", "a", "b"])
    ]
    assert seen[0].accuracy == seen[1].accuracy
    assert [step.column for step in seen[0].steps] == ["word=text"]
    entries = [(i, j) for i in range(9) for j in range(9) if (i + j) % 3]
    rows, columns = zip(*entries, strict=True)
    values = [float((i + 1) * (j + 1)) for i, j in entries]
    options = {"depths": (2,), "scales": (1e-3,), "ranks": (1,)}
    for name in "ab":
        found = ng.complete([f"{name}{i}" for i in rows], columns, values, **options)
        assert found.rows[0] == f"{name}0"
    with pytest.raises(InvalidInputError, match="center must be 'auto', 'none', 'mean' or 'means'"):
        ng.complete(rows, columns, values, center="rubbish")


def test_features_of_any_size_are_standardized():
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(60, 2, generator=generator, dtype=torch.float64).numpy()
    y = (x[:, 0] + 0.3 * x[:, 1] > 0).astype(int)
    few = {"depths": (1,), "until": 100.0, "folds": 2}
    plain, extreme = (ng.compare(x * scale, y, **few) for scale in ([1, 1], [1e200, 1e-200]))
    assert plain.kind == extreme.kind == "separable"
    assert plain.accuracy == extreme.accuracy


@pytest.mark.parametrize("command", ["compare", "complete"])
def test_the_help_of_a_command_names_every_option(command, capsys):
    config = {"compare": compare_config, "complete": complete_config}[command]
    assert cli.main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    for name in config.OPTIONS:
        assert f"--{name.replace('_', '-')}" in printed
    assert not [old for old in config.RENAMED if f"--{old}" in printed]


@pytest.mark.parametrize("command", ["compare", "complete"])
def test_reading_options_needs_no_torch(command):
    code = (
        f"import sys, natgrad.experiments.{command}.config as config; config.Choices(); "
        "print([name for name in ('torch', 'numpy', 'matplotlib') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_old_names_warn_for_one_release_in_python():
    x, y = torch.randn(20, 2, generator=torch.Generator().manual_seed(0)).numpy(), [0, 1] * 10
    few = {"depths": (1,), "until": 10.0, "folds": 2}
    with pytest.warns(DeprecationWarning, match="option standardize now, not standardise"):
        old = ng.compare(x, y, standardise=False, **few)
    new = ng.compare(x, y, standardize=False, **few)
    assert np.array_equal(old.angles, new.angles, equal_nan=True)
    with pytest.warns(DeprecationWarning, match="option unlabeled now, not unlabelled"):
        ng.compare(x, y, unlabelled=x, **few)
    with pytest.raises(InvalidInputError, match="leave out standardise"):
        ng.compare(x, y, standardise=False, standardize=False, **few)
    with pytest.raises(InvalidInputError, match="leave out unlabelled"):
        ng.compare(x, y, unlabelled=x, unlabeled=x, **few)
    entries = [(i, j) for i in range(9) for j in range(9) if (i + j) % 3]
    rows, columns = zip(*entries, strict=True)
    values = [float((i + 1) * (j + 1)) for i, j in entries]
    options = {"depths": (2,), "scales": (1e-3,), "ranks": (1,), "max_evaluations": 50}
    with pytest.warns(DeprecationWarning, match="option center now, not centring"):
        old = ng.complete(rows, columns, values, centring="means", **options)
    new = ng.complete(rows, columns, values, center="means", **options)
    assert old.matrix.tolist() == new.matrix.tolist()


def test_old_names_warn_for_one_release_on_the_command_line(labeled, triples, tmp_path, capsys):
    assert compare(labeled, tmp_path / "runs", "--no-standardise") == 0
    said = capsys.readouterr()
    assert (
        "natgrad: --no-standardise is now --no-standardize; version 0.3 removes the old name"
        in said.err
    )
    assert "not standardized" in said.out
    arguments = ["complete", str(triples), "--preset", "smoke", "--out", str(tmp_path / "runs")]
    assert cli.main([*arguments, *HOW, "--centring=none"]) == 0
    said = capsys.readouterr()
    assert "natgrad: --centring is now --center; version 0.3 removes the old name" in said.err
    config = (tmp_path / "runs" / "complete-ratings" / "config.toml").read_text()
    assert 'center = "none"' in config
