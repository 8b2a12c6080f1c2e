"""The race from end to end on small problems, and the sentences about its result."""

import json
import math
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from natgrad import cli
from natgrad.errors import InvalidInputError
from natgrad.experiments._data import shipped
from natgrad.experiments.race import RACE, Race, _kfac_jax, cells, problems
from natgrad.experiments.race import config as field
from natgrad.experiments.race._ngd import natural
from natgrad.experiments.race._peers import OPTIMIZERS, peer
from natgrad.experiments.race.claims import against, best_peer, claims, defeats, missed
from natgrad.experiments.race.record import page, record
from natgrad.experiments.race.training import Run, Settings
from natgrad.lab._store.sources import closure
from natgrad.lab.arrays import Arrays


@pytest.fixture
def bench(counted, tmp_path):
    def run(*arguments: str) -> int:
        return cli.main(["bench", *arguments, "--out", str(tmp_path / "runs"), "--quiet"])

    return run


def test_the_command(bench, tmp_path, capsys):
    file = tmp_path / "race.json"
    assert bench("--smoke", "--json", str(file)) == 0
    found = json.loads(file.read_text())
    assert list(found["problems"]) == ["digits", "table"]
    assert found["environment"]["torch"]
    assert found["date"].startswith("20")
    for problem in found["problems"].values():
        assert list(problem["entrants"]) == [*field.TORCH, field.UNTUNED]
        for who, entrant in problem["entrants"].items():
            assert [final["seed"] for final in entrant["finals"]] == [1, 2]
            assert len(entrant["trials"]) == (0 if who == field.UNTUNED else 2)
            assert all(0 < final["test_score"] for final in entrant["finals"])
        natural = problem["entrants"]["NGD"]
        assert natural["ratio"]["value"] == pytest.approx(1.0)
    folder = tmp_path / "runs" / "race"
    assert {"report.json", "figure.png", "figure.svg", "summary.md"} <= {
        path.name for path in folder.iterdir()
    }
    assert "Where NGD loses" in capsys.readouterr().out
    before = json.loads((folder / "report.json").read_text())["cells"]
    assert bench("--smoke") == 0  # finished runs are kept
    after = json.loads((folder / "report.json").read_text())["cells"]
    assert before["reused"] == 0
    assert after["reused"] == after["done"] == before["done"]


def test_bad_usage(bench, tmp_path, capsys):
    assert bench("--smoke", "--full") == 2
    assert bench("--json", str(tmp_path / "nowhere" / "file.json")) == 2
    assert bench("--json", str(tmp_path)) == 2
    errors = capsys.readouterr().err
    assert "cannot be combined" in errors
    assert "no folder" in errors
    assert "it is a folder" in errors


SMALL = Race(
    problems=("table",),
    targets=(0.6,),
    budgets=(0.1,),
    contestants=("SGD", "NGD"),
    trials=2,
    seeds=2,
    points=5,
)


def here(order: list):
    def sweep(cells, title=""):
        order.extend((cell.config.method, cell.config.seed, cell.config.test) for cell in cells)
        return [cell.run() for cell in cells]

    return sweep


def test_contestants_take_turns(counted):
    order: list = []
    arrays = cells.compute(SMALL, here(order))
    assert order == [
        *[("SGD", 0, False), ("NGD", 0, False)] * 2,
        *[("SGD", 1, True), ("NGD", 1, True), ("NGD", 1, True)],
        *[("SGD", 2, True), ("NGD", 2, True), ("NGD", 2, True)],
    ]
    assert arrays["raced"].all()


def test_the_best_trial_goes_to_the_finals(counted):
    arrays = cells.compute(SMALL, here([]))
    seconds, best = arrays["trial_seconds"][0], arrays["trial_best"][0]
    for c in range(2):
        ranks = [
            (math.inf if math.isnan(t) else t, b) for t, b in zip(seconds[c], best[c], strict=True)
        ]
        assert arrays["chosen"][0, c] == ranks.index(min(ranks))
    assert arrays["chosen"][0, 2] == 0  # NGD with default settings


def test_a_problem_without_data_is_left_out(counted, monkeypatch):
    def missing():
        raise InvalidInputError("there is no such table.")

    problems.load.cache_clear()
    monkeypatch.setattr(shipped, "digits", missing)
    both = replace(SMALL, problems=("digits", "table"), targets=(0.1, 0.6), budgets=(0.1, 0.1))
    heats, notes = cells.prepare(both)
    assert [heat.problem for heat in heats] == ["table"]
    assert notes == ["The problem digits was left out: there is no such table."]
    with pytest.raises(InvalidInputError, match="no problem can be raced"):
        cells.prepare(replace(SMALL, problems=("digits",)))


def test_a_peer_that_cannot_be_installed_is_left_out(monkeypatch, tmp_path):
    def fail(*_, **__):
        raise subprocess.CalledProcessError(1, "pip", stderr=b"no network\nERROR: no jax\n")

    monkeypatch.setenv("NATGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(_kfac_jax.subprocess, "run", fail)
    monkeypatch.setattr(_kfac_jax.venv, "create", lambda *_, **__: None)
    config = replace(SMALL, problems=("digits",), contestants=("kfac-jax", "NGD"))
    (heat,), (note,) = cells.prepare(config)
    assert heat.contestants == ("NGD",)
    assert note.startswith("kfac-jax did not race: the environment")
    assert note.endswith("ERROR: no jax")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": (1.0, 2.0)}, "each of 1 problems"),
        ({"contestants": ("SGD",)}, "and include NGD, but are SGD"),
        ({"contestants": ("NGD", "Adagrad")}, "but are NGD, Adagrad"),
        ({"trials": 0}, "at least 1"),
    ],
)
def test_races_that_cannot_be(change, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(SMALL, **change)


def test_presets_give_all_the_same_trials_and_three_seeds():
    for preset in ("quick", "paper"):
        assert RACE.presets[preset].seeds >= 3
    assert set(RACE.presets["paper"].contestants) == set(field.CONTESTANTS)
    assert tuple(OPTIMIZERS) == field.PEERS


def test_results_of_peers_outlive_changes_of_the_optimizer():
    of_peers, of_ours = closure(peer), closure(natural)
    assert not [name for name in of_peers if name.startswith("natgrad.optim")]
    assert "natgrad.optim.ngd" in of_ours
    assert {f"natgrad.experiments.race.{name}" for name in ("_clock", "training", "_muon")} <= set(
        of_peers
    )
    assert "natgrad.experiments.race._kfac_jax_child" in closure(_kfac_jax.kfac)


NAN = math.nan


def result(times: dict[str, list[float]], problem: str = "autoencoder") -> Arrays:
    """A race on one problem, budget 10, whose steps take 0.1 s (NGD's 0.4 s)."""
    names = list(times)
    arrays = Arrays(problem=[problem], entrant=names, note=["A note."])
    seconds = np.array(list(times.values()))[None]
    cost = np.array([0.4 if name.startswith("NGD") else 0.1 for name in names])[None, :, None]
    arrays.add("time_to_target", seconds, "problem", "entrant", "seed")
    arrays.add("steps_to_target", seconds / cost, "problem", "entrant", "seed")
    arrays.add("raced", np.ones((1, len(names)), dtype=bool), "problem", "entrant")
    arrays.add("budget", [10.0], "problem")
    return arrays


def test_targets_met():
    arrays = result(
        {"SGD": [9.0, 9.0], "Muon": [4.0, 5.0], "kfac-jax": [NAN, NAN], "NGD": [2.0, 2.0]}
    )
    best, kfac = claims(None, arrays)
    assert best.value == pytest.approx(math.sqrt(5.0))
    assert "Muon" in best.statement
    assert best.holds("paper")
    assert kfac.value == pytest.approx(5.0)
    assert "lower bound" in kfac.statement
    assert missed(None, arrays) == []
    assert defeats(arrays) == []


def test_a_target_missed_and_why():
    arrays = result({"AdamW": [1.0, 1.0], "NGD": [2.0, 2.0]}, problem="classifier")
    (claim,) = claims(None, arrays)
    assert claim.holds("paper") is False
    assert claim.holds("quick") is None
    (sentence,) = missed(None, arrays)
    assert "0.50" in sentence
    (defeat,) = defeats(arrays)
    # Twice the seconds are half the steps at four times the cost.
    assert "2.00 times as long as AdamW: it needs 0.50 times as many steps" in defeat
    assert "each costs 4.0 times as much" in defeat
    assert "its steps cost too much" in defeat


def test_ngd_that_never_arrives():
    arrays = result({"AdamW": [1.0, 1.0], "NGD": [NAN, NAN]}, problem="transformer")
    (claim,) = claims(None, arrays)
    assert claim.value == pytest.approx(0.1)
    assert "upper bound" in claim.statement
    (defeat,) = defeats(arrays)
    assert "at least 10.00 times as long" in defeat
    assert "does not reach the target" in defeat


def test_no_method_reaches_the_target():
    arrays = result({"AdamW": [NAN], "NGD": [NAN]}, problem="transformer")
    (claim,) = claims(None, arrays)
    assert math.isnan(claim.value)
    assert "neither" in missed(None, arrays)[0]
    assert best_peer(arrays, "transformer") is None
    assert against(arrays, "chess", "AdamW") is None


def test_a_page_of_a_race_without_finishers(counted):
    arrays = cells.compute(replace(SMALL, targets=(1e-9,)), here([]))
    keys = ("preset", "options", "environment", "revision", "claims", "departures", "cells")
    report = dict.fromkeys(keys) | {
        "environment": {"cpu": "a core", "torch": "2"},
        "claims": [],
        "departures": [],
    }
    text = page(record(report, arrays))
    assert "| NGD untuned | –, – | – | – | – |" in text
    assert "Nowhere; nothing." in text
    cells.draw(SMALL, arrays)  # it has a picture all the same


@pytest.mark.slow
@pytest.mark.skipif(
    not (_kfac_jax.cache().with_name("kfac-jax") / "pins.txt").is_file(),
    reason="the environment of kfac-jax has not been made; natgrad bench --full makes it",
)
def test_kfac_jax_learns():
    run = Run(
        problem="digits",
        method="kfac-jax",
        settings=Settings(lr=None, batch=100, damping=1.0),
        seed=0,
        budget=0.3,
        points=3,
        target=0.0,
        stop=False,
        test=True,
        machine="",
    )
    curve = _kfac_jax.kfac(run)
    problem = problems.load("digits")
    first, _ = problem.score(problem.make(0), problem.validation)
    assert curve["score"][0] == pytest.approx(first, rel=1e-4)  # the weights of the others
    assert curve["score"][-1] < curve["score"][0]
