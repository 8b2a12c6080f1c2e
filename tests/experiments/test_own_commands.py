"""`natgrad compare` and `natgrad complete` as a user types them."""

import json
import re

import pytest
import torch

from natgrad import cli
from natgrad.lab.folder import RunFolder

HOW = ("--engine", "serial", "--quiet")


@pytest.fixture
def labelled(tmp_path):
    """A table of two classes, one feature of which tells them apart."""
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


def test_compare_prints_and_leaves_the_files_of_any_figure(labelled, tmp_path, capsys):
    assert compare(labelled, tmp_path / "runs") == 0
    printed = capsys.readouterr().out
    assert "The data are separable" in printed
    assert "EGD L=2" in printed
    folder = tmp_path / "runs" / "compare-patients"
    names = {"config.toml", "report.json", "arrays.safetensors", "figure.png", "figure.pdf"}
    assert names <= {path.name for path in folder.iterdir()}
    page = (tmp_path / "runs" / "report.html").read_text()
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", page))
    assert f"natgrad compare {labelled} --label state" in text
    (folder / "figure.png").unlink()
    assert cli.main(["draw", str(folder)]) == 0
    assert (folder / "figure.png").is_file()


def test_compare_for_machines(labelled, tmp_path, capsys):
    assert compare(labelled, tmp_path / "runs", "--json") == 0
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
        (["compare", "{labelled}", "--label", "stat"], "Did you mean 'state'?"),
        (["compare", "{labelled}", "--label", "state", "--folds", "1"], "folds must be 2 or more"),
        (["complete", "{labelled}"], "natgrad: "),
    ],
)
def test_bad_input_gets_a_sentence(command, said, labelled, tmp_path, capsys):
    words = [word.replace("{labelled}", str(labelled)) for word in command]
    assert cli.main([*words, *HOW, "--out", str(tmp_path / "runs")]) == 2
    complaint = capsys.readouterr().err.strip()
    assert said in complaint
    assert "Traceback" not in complaint
