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
from natgrad.experiments.race import RACE, Race, cells, parts, problems, tuning
from natgrad.experiments.race import config as field
from natgrad.experiments.race.claims import against, best_peer, claims, defeats, final_ratio, missed
from natgrad.experiments.race.entrants import kfac_jax
from natgrad.experiments.race.entrants.ngd import natural
from natgrad.experiments.race.entrants.peers import OPTIMIZERS, peer
from natgrad.experiments.race.record import page, record
from natgrad.experiments.race.training import Run, Settings
from natgrad.lab._store.sources import closure
from natgrad.lab.arrays import Arrays


@pytest.fixture
def bench(counted, tmp_path):
    def run(*arguments: str) -> int:
        return cli.main(["bench", *arguments, "--out", str(tmp_path / "runs"), "--quiet"])

    return run


def test_the_command_runs_the_race_in_parts(bench, tmp_path, capsys):
    file, runs = tmp_path / "race.json", tmp_path / "runs"
    assert bench("--smoke", "--part", "table", "--json", str(file)) == 0
    found = json.loads(file.read_text())
    assert list(found["problems"]) == ["table"]
    assert "Parts that have not been run: digits." in found["departures"]
    assert all(claim["holds"] is None for claim in found["claims"])
    table = (runs / "race-table" / "report.json").read_bytes()
    capsys.readouterr()
    assert bench("--smoke", "--json", str(file)) == 0
    assert (runs / "race-table" / "report.json").read_bytes() == table  # it is not repeated
    out = capsys.readouterr().out
    assert "table: finished at revision" in out
    assert "Where NGD loses" in out
    found = json.loads(file.read_text())
    assert list(found["problems"]) == list(found["parts"]) == ["digits", "table"]
    assert found["environment"]["torch"]
    assert found["date"].startswith("20")
    for problem in found["problems"].values():
        assert list(problem["entrants"]) == [*field.TORCH, field.DEFAULT]
        for who, entrant in problem["entrants"].items():
            assert [final["seed"] for final in entrant["finals"]] in ([11, 12], [])
            assert len(entrant["trials"]) == (0 if who == field.DEFAULT else 3)
            assert all(0 < final["test_score"] for final in entrant["finals"])
        raced = [who for who in field.PEERS if problem["entrants"][who]["finals"]]
        assert len(raced) == 1
        assert problem["entrants"]["NGD"]["ratio"]["value"] == pytest.approx(1.0)
    names = {"report.json", "figure.png", "figure.svg", "summary.md", "race.json"}
    assert names <= {path.name for path in (runs / "race").iterdir()}


def test_bad_usage(bench, tmp_path, capsys):
    assert bench("--smoke", "--full") == 2
    assert bench("--json", str(tmp_path / "nowhere" / "file.json")) == 2
    assert bench("--json", str(tmp_path)) == 2
    assert bench("--smoke", "--part", "chess") == 2
    errors = capsys.readouterr().err
    assert "cannot be combined" in errors
    assert "no folder" in errors
    assert "it is a folder" in errors
    assert "--part is one of digits, table, but is 'chess'" in errors


SMALL = Race(
    problems=("table",),
    budgets=(0.1,),
    contestants=("SGD", "AdamW", "NGD tuned"),
    draws=2,
    refinements=1,
    short=0.5,
    whole=2,
    finalists=1,
    seeds=2,
    marks=2,
    points=5,
)


def here(order: list):
    def sweep(cells, title=""):
        order.extend(
            (cell.config.method, cell.config.seed, cell.config.budget, cell.config.test)
            for cell in cells
        )
        return [cell.run() for cell in cells]

    return sweep


def test_contestants_take_turns_with_equal_trials(counted):
    order: list = []
    arrays = cells.compute(SMALL, here(order))
    turn = ("SGD", "AdamW", "NGD")
    trials = [(who, 0, 0.05, False) for _ in range(3) for who in turn]
    whole = [(who, 0, 0.1, False) for _ in range(2) for who in turn]
    assert order[:15] == trials + whole
    best, *rest = {who for who, *_ in order[15:17]}
    assert order[15:17] == [(best, -1, 0.1, False), (best, -2, 0.1, False)]  # for the target
    assert not rest
    assert best in field.PEERS
    finals = order[17:]
    assert {seed for _, seed, _, _ in finals} == {11, 12}  # none of them is the tuning's
    assert all(test and budget == 0.1 for _, _, budget, test in finals)
    assert {who for who, *_ in finals} & set(field.PEERS) == {best}
    assert arrays["tuned"].all()
    assert arrays["raced"].sum() == 3


def test_the_target_is_the_best_peers_median_score_at_the_mark(counted):
    """Computed again from the whole runs of the tuning, which NGD's do not enter."""
    seen: list = []

    def sweep(cells, title=""):
        results = [cell.run() for cell in cells]
        if title.endswith(("whole runs", "the target")):
            seen.extend((c.config, r) for c, r in zip(cells, results, strict=True))
        return results

    arrays = cells.compute(SMALL, sweep)
    marks: dict = {}
    for run, result in seen:
        low = min(
            score
            for seconds, score in zip(result["seconds"], result["score"], strict=True)
            if seconds <= 0.08 + 1e-9
        )
        marks.setdefault((run.method, run.settings), []).append(low)
    (best,) = [each for each in marks.values() if len(each) == 3]
    assert arrays["target"][0] == pytest.approx(np.median(best[1:]))  # not that of the choice
    assert len(seen) == 6 + 2
    whole = {key: each[0] for key, each in marks.items() if key[0] != "NGD"}
    assert best[0] == min(whole.values())  # the best by the mark, as here, goes on


def test_the_best_whole_run_goes_to_the_finals(counted):
    arrays = cells.compute(SMALL, here([]))
    seconds, best = arrays["whole_seconds"][0], arrays["whole_best"][0]
    for c in range(3):
        ranks = {
            k: (math.inf if math.isnan(seconds[c, k]) else seconds[c, k], best[c, k])
            for k in range(3)
            if not math.isnan(best[c, k])
        }
        assert len(ranks) == 2
        assert arrays["chosen"][0, c] == min(ranks, key=ranks.__getitem__)
        # The settings of whole runs are those whose short runs were best.
        short = arrays["trial_best"][0, c]
        assert max(short[list(ranks)]) <= min(np.delete(short, list(ranks)))


def test_a_diverged_trial_is_no_good():
    score = np.array([1.0, 0.1, np.inf])
    assert tuning.best_score({"score": score}) == math.inf
    assert tuning.best_score({"score": score[:2]}) == 0.1


def test_a_rate_on_the_edge_is_reported():
    def tried(*rates: float, chosen: int) -> tuning.Tuning:
        return tuning.Tuning([Settings(lr=r, batch=1) for r in rates], chosen=chosen)

    assert tried(0.1, 0.3, 0.9, chosen=2).on_edge()
    assert not tried(0.1, 0.9, 0.3, chosen=2).on_edge()
    assert not tuning.Tuning([Settings(batch=1)]).on_edge()


def test_a_problem_without_data_is_left_out(counted, monkeypatch):
    def missing():
        raise InvalidInputError("there is no such table.")

    problems.load.cache_clear()
    monkeypatch.setattr(shipped, "digits", missing)
    both = replace(SMALL, problems=("digits", "table"), budgets=(0.1, 0.1))
    heats, notes = cells.prepare(both)
    assert [heat.problem for heat in heats] == ["table"]
    assert notes == ["The problem digits was left out: there is no such table."]
    with pytest.raises(InvalidInputError, match="no problem can be raced"):
        cells.prepare(replace(SMALL, problems=("digits",)))


def test_a_peer_that_cannot_be_installed_is_left_out(monkeypatch, tmp_path):
    def fail(*_, **__):
        raise subprocess.CalledProcessError(1, "pip", stderr=b"no network\nERROR: no jax\n")

    monkeypatch.setenv("NATGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(kfac_jax.subprocess, "run", fail)
    monkeypatch.setattr(kfac_jax.venv, "create", lambda *_, **__: None)
    config = replace(SMALL, problems=("digits",), contestants=("kfac-jax", *SMALL.contestants))
    (heat,), (note,) = cells.prepare(config)
    assert heat.contestants == SMALL.contestants
    assert note.startswith("kfac-jax did not race: the environment")
    assert note.endswith("ERROR: no jax")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"budgets": (1.0, 2.0)}, "each of 1 problems"),
        ({"contestants": ("SGD",)}, "and include NGD tuned and a peer, but are SGD"),
        ({"contestants": ("NGD tuned",)}, "and a peer, but are NGD tuned"),
        ({"contestants": ("SGD", "NGD tuned", "Adagrad")}, "but are SGD, NGD tuned, Adagrad"),
        ({"draws": 0}, "at least 1"),
        ({"whole": 4}, "at most the 3 short runs"),
        ({"mark": 0.0}, "between 0 and 1"),
    ],
)
def test_races_that_cannot_be(change, message):
    with pytest.raises(InvalidInputError, match=message):
        replace(SMALL, **change)


def test_presets():
    assert RACE.presets["quick"].seeds >= 3
    full = RACE.presets["paper"]
    assert full.seeds == 5
    assert full.part("vae").problems == ("vae",)
    with pytest.raises(InvalidInputError, match="a part is one of table"):
        full.part("chess")
    small = {"table", "noisy", "autoencoder", "classifier", "transformer"}
    budgets = dict(zip(full.problems, full.budgets, strict=True))
    assert all(seconds >= 30 for name, seconds in budgets.items() if name not in small)
    # Runs per second of budget: tuning, then two peers and two NGDs on five seeds.
    tuned = full.short * (full.draws + full.refinements) + full.whole
    each = tuned * (len(field.PEERS) + 1) + full.seeds * (full.finalists + 2)
    each += full.finalists * full.marks  # for the target
    assert each * max(full.budgets) < 60 * 60  # a part
    assert each * sum(full.budgets) < 150 * 60  # all
    assert set(RACE.presets["paper"].contestants) == set(field.CONTESTANTS)
    assert tuple(OPTIMIZERS) == field.PEERS


def test_results_of_peers_outlive_changes_of_the_optimizer():
    of_peers, of_ours = closure(peer), closure(natural)
    assert not [name for name in of_peers if name.startswith("natgrad.optim")]
    assert "natgrad.optim.ngd" in of_ours
    assert {
        f"natgrad.experiments.race.{name}" for name in ("_clock", "training", "entrants.muon")
    } <= set(of_peers)
    assert "natgrad.experiments.race.entrants.kfac_jax_child" in closure(kfac_jax.kfac)


NAN = math.nan


def result(
    times: dict[str, list[float]],
    problem: str = "autoencoder",
    finals: dict[str, float] | None = None,
) -> Arrays:
    """A race on one problem, budget 10, whose steps take 0.1 s (NGD's 0.4 s)."""
    names = list(times)
    arrays = Arrays(problem=[problem], entrant=names, note=["A note."])
    seconds = np.array(list(times.values()))[None]
    cost = np.array([0.4 if name.startswith("NGD") else 0.1 for name in names])[None, :, None]
    last = np.array([(finals or {}).get(name, 1.0) for name in names])[None, :, None]
    arrays.add("time_to_target", seconds, "problem", "entrant", "seed")
    arrays.add("steps_to_target", seconds / cost, "problem", "entrant", "seed")
    arrays.add("final", last + 0 * np.nan_to_num(seconds), "problem", "entrant", "seed")
    arrays.add("raced", np.ones((1, len(names)), dtype=bool), "problem", "entrant")
    arrays.add("budget", [10.0], "problem")
    return arrays


def test_aims_met():
    arrays = result(
        {"SGD": [9.0, 9.0], "Muon": [4.0, 5.0], "kfac-jax": [NAN, NAN], "NGD": [2.0, 2.0]}
    )
    best, kfac, mean, least, final = claims(None, arrays)
    assert best.value == pytest.approx(math.sqrt(5.0))
    assert "Muon" in best.statement
    assert best.holds("paper")
    assert kfac.value == pytest.approx(5.0)
    assert "lower bound" in kfac.statement
    assert mean.value == least.value == pytest.approx(math.sqrt(5.0))
    assert final.value == 1  # of one problem
    assert [claim for claim in missed(None, arrays) if "final" not in claim] == []
    assert defeats(arrays) == []


def test_aims_over_all_problems():
    """Ratios of 10 and 0.5: clipped to 4, their mean is √2."""
    fast = result({"AdamW": [10.0], "NGD": [1.0]}, finals={"AdamW": 1.0, "NGD": 0.9})
    slow = result({"AdamW": [1.0], "NGD": [2.0]}, "table", finals={"AdamW": 1.0, "NGD": 1.5})
    arrays = parts.joined([fast, slow])
    found = {claim.id: claim for claim in claims(None, arrays)}
    assert found["mean-best-peer"].value == pytest.approx(math.sqrt(2.0))
    assert found["least-best-peer"].value == pytest.approx(0.5)
    assert found["final-loss"].value == 1
    assert final_ratio(arrays, "table") == pytest.approx(1.5)


def test_an_aim_missed_and_why():
    arrays = result({"AdamW": [1.0, 1.0], "NGD": [2.0, 2.0]}, problem="classifier")
    claim, *_ = claims(None, arrays)
    assert claim.holds("paper") is False
    assert claim.holds("quick") is None
    sentence, *_ = missed(None, arrays)
    assert "0.50" in sentence
    (defeat,) = defeats(arrays)
    # Twice the seconds are half the steps at four times the cost.
    assert "2.00 times as long as AdamW: it needs 0.50 times as many steps" in defeat
    assert "each costs 4.0 times as much" in defeat
    assert "its steps cost too much" in defeat


def test_ngd_that_never_arrives():
    arrays = result({"AdamW": [1.0, 1.0], "NGD": [NAN, NAN]}, problem="transformer")
    claim, *_ = claims(None, arrays)
    assert claim.value == pytest.approx(0.1)
    assert "upper bound" in claim.statement
    (defeat,) = defeats(arrays)
    assert "at least 10.00 times as long" in defeat
    assert "does not reach the target" in defeat


def test_no_method_reaches_the_target():
    arrays = result({"AdamW": [NAN], "NGD": [NAN]}, problem="transformer")
    assert [claim.id for claim in claims(None, arrays)] == [
        "mean-best-peer",
        "least-best-peer",
        "final-loss",
    ]
    assert best_peer(arrays, "transformer") is None
    assert against(arrays, "chess", "AdamW") is None


def test_a_page_of_a_race_that_ngd_does_not_finish(counted):
    arrays = cells.compute(SMALL, here([]))
    arrays.add("time_to_target", np.full_like(arrays["time_to_target"], NAN), "problem", "entrant",
               "seed")  # fmt: skip
    keys = ("preset", "options", "environment", "revision", "claims", "departures", "parts")
    report = dict.fromkeys(keys) | {
        "environment": {"cpu": "a core", "torch": "2"},
        "parts": {"table": {"revision": None}},
        "claims": [],
        "departures": [],
    }
    text = page(record(report, arrays))
    assert "| NGD | –, – | – | – |" in text
    assert "revision unknown" in text
    assert "Nowhere; nothing." in text
    cells.draw(SMALL, arrays)  # it has a picture all the same


@pytest.mark.slow
@pytest.mark.skipif(
    not (kfac_jax.cache().with_name("kfac-jax") / "pins.txt").is_file(),
    reason="the environment of kfac-jax has not been made; natgrad bench --full makes it",
)
def test_kfac_jax_learns():
    run = Run(
        problem="digits",
        method="kfac-jax",
        settings=Settings(batch=100, damping=1.0),
        seed=0,
        budget=0.3,
        points=3,
        test=True,
        machine="",
    )
    curve = kfac_jax.kfac(run)
    problem = problems.load("digits")
    first, _ = problem.score(problem.make(0), problem.validation)
    assert curve["score"][0] == pytest.approx(first, rel=1e-4)  # the weights of the others
    assert curve["score"][-1] < curve["score"][0]
