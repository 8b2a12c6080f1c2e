"""`compare` on ordinary tables: text, gaps, several classes, and a verdict in words."""

import json
import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.stats import norm

from natgrad import cli
from natgrad.errors import InvalidInputError
from natgrad.experiments.compare import compare
from natgrad.experiments.compare._describe import _axes
from natgrad.experiments.compare._judge import class_weights, telltale, twin_ceiling
from natgrad.experiments.compare._verdict import Candidate, Scale
from natgrad.experiments.compare.result import Comparison
from natgrad.lab import figures

FEW = {"depths": (1, 2), "folds": 2, "until": 1e3}


def passengers(n: int = 240, seed: int = 0):
    """A table like the Titanic's: texts, gaps, an identifier, a copy; and whether they survived."""
    random = np.random.default_rng(seed)
    male, cabin = random.random(n) < 0.6, random.integers(1, 4, n)
    age = random.normal(30, 12, n)
    logit = 1.5 - 2.5 * male - 0.8 * (cabin - 2) - 0.02 * (age - 30)
    survived = random.random(n) < 1 / (1 + np.exp(-logit))
    return {
        "id": [str(k) for k in range(n)],
        "sex": np.where(male, "male", "female").tolist(),
        "class": [("1st", "2nd", "3rd")[k - 1] for k in cabin],
        "age": [f"{a:.0f}" if random.random() < 0.8 else "" for a in age],
        "months": [f"{12 * k}" for k in cabin],
        "cabin": [str(k) for k in cabin],
        "survived": np.where(survived, "yes", "no").tolist(),
    }


def write(path, table):
    lines = [",".join(table), *(",".join(row) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def found():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(passengers())
    frame["age"] = pandas.to_numeric(frame["age"])
    return compare(frame.drop(columns="survived"), frame["survived"], **FEW)


def test_no_row_and_no_text_is_lost(found) -> None:
    assert found.kind == "not separable"
    assert len(found.arrays["judged_label"]) == 240
    assert {"sex=male", "class=1st", "age"} <= set(found.features)
    assert found.accuracy["NGD"] > found.baseline + 0.1
    steps = {step.column: step.done for step in found.steps}
    assert steps["id"].startswith("left out: it counts the rows")
    assert steps["cabin"] == "left out: a copy of 'months' in other units"
    assert "gaps filled with the median" in steps["age"]


def test_the_verdict_comes_first_and_in_words(found) -> None:
    first, best = found.verdict[:2]
    assert " ".join(str(found).split()).startswith(f"• {first}")
    assert max(map(len, str(found).splitlines())) <= 100
    assert first.startswith("Not separable: no hyperplane divides the classes")
    assert "that is why their separators agree" in first
    assert best.startswith("Best on held-out rows: ")
    told = " ".join(found.verdict)
    for word in ("Depth, against L = 1", "Early stopping", "Noise", "To try", "missing=flag"):
        assert word in told, word


def test_notebooks_see_tables_and_no_markup_of_the_user(found) -> None:
    page = found._repr_html_()
    assert page.count("<table>") == 2
    assert "Not separable" in page
    pandas = pytest.importorskip("pandas")
    x = np.random.default_rng(0).standard_normal((20, 2))
    frame = pandas.DataFrame(x, columns=["<script>", "b"]).assign(**{"<i>": ["u", "v"] * 10})
    assert "<script>" not in compare(frame, [0, 0, 1, 1] * 5, **FEW)._repr_html_()
    assert repr(found) == str(found)


def test_everything_in_json(found) -> None:
    told = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert told["verdict"] == list(found.verdict)
    assert {"column", "done", "undo"} == set(told["steps"][0])
    flows = ("EGD L=1", "EGD L=2", "NGD", "NGD population")
    assert set(told["stopped"]) == {*flows, "ℓ2 penalty", "ℓ1 penalty"}
    keys = {"kind", "rank", "rank_deficient", "features", "methods"}  # as in 0.1
    assert keys <= set(told)
    kept = {"accuracy", "interval", "spread", "margin", "features_used", "angles", "coefficients"}
    assert kept <= set(told["methods"]["NGD"])


@pytest.mark.parametrize(
    "panel", ["separators", "coefficients", "stopping", "accuracy", "angles", "calibration"]
)
def test_every_panel_can_be_drawn_on_given_axes(found, panel) -> None:
    axes = Figure().subplots()
    assert found.plot(axes, panel=panel) is axes
    assert axes.get_title(loc="left") or axes.get_title()
    with pytest.raises(InvalidInputError, match="panel must be"):
        found.plot(axes, panel="rows")


def test_stopping_points_are_chosen_on_other_folds(found) -> None:
    arrays = found.arrays
    k = arrays.coordinates["path"].index("EGD L=1")
    assert found.stopped["EGD L=1"].at == arrays["path_dial"][k, arrays["stop_step"][k]]
    # The pooled loss at one common point is never above that at points chosen without each fold.
    best = arrays["path_loss"].min(axis=1)
    assert np.all(best <= arrays["stop_loss"] + 1e-12)
    assert found.stopped["EGD L=1"].log_loss < math.log(2)


def test_flagged_gaps_and_dropped_columns() -> None:
    table = passengers(120)
    x = {name: table[name] for name in table if name != "survived"}
    pandas = pytest.importorskip("pandas")
    flagged = compare(pandas.DataFrame(x), table["survived"], missing="flag", drop="sex", **FEW)
    assert "age is missing" in flagged.features
    assert not [name for name in flagged.features if name.startswith("sex")]
    dropped = compare(pandas.DataFrame(x), table["survived"], missing="drop", **FEW)
    assert len(dropped.arrays["judged_label"]) == sum(age != "" for age in table["age"])


def test_a_column_that_tells_the_label_is_named() -> None:
    table = passengers(100)
    alive = [{"yes": "alive", "no": "dead"}[one] for one in table["survived"]]
    x = np.random.default_rng(1).standard_normal(100)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"state": alive, "x": x})
    found = compare(frame, table["survived"], **FEW)
    assert "check 'state=dead': it separates the classes alone" in found.verdict[-1]


def test_a_rare_level_makes_data_quasi_separable_and_is_named() -> None:
    table = passengers(80)
    table["class"][0], table["survived"][0] = "*", "no"
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table).drop(columns="survived")
    found = compare(frame, table["survived"], **FEW)
    assert found.kind == "quasi-separable"
    assert found.verdict[0].startswith("Quasi-separable: hyperplanes put 1 of 80 rows on their own")
    assert "joining rare levels or leaving out their rows: 'class=*' has 1 row" in found.verdict[-1]
    assert not [one for one in found.verdict[1:] if "limit of NGD" in one]


def test_balanced_classes_raise_the_recall_of_the_rare_one() -> None:
    random = np.random.default_rng(3)
    y = (np.arange(200) % 10 == 0).astype(int)
    x = random.standard_normal((200, 2)) + 1.2 * y[:, None]
    plain, balanced = (compare(x, y, class_weight=w, **FEW) for w in ("none", "balanced"))
    assert "class_weight=balanced: '1' has only 20 rows" in plain.verdict[-1]
    assert balanced.balanced_accuracy["NGD"] > plain.balanced_accuracy["NGD"] + 0.05
    assert balanced.baseline == 0.5
    assert "balanced accuracy" in balanced.verdict[1]


def test_three_classes() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    table = datasets.load_wine()
    names = list(table.feature_names)
    found = compare(table.data, table.target, names=names, depths=(1, 2), folds=2, until=100.0)
    assert found.kind == "separable"
    assert found.classes == ("0", "1", "2")
    assert found.coefficients.shape == (len(found.methods), 3, 14)
    assert min(found.accuracy.values()) > 0.9
    best = found.margin["ℓ2 max margin"]
    assert all(margin <= best * (1 + 1e-9) for margin in found.margin.values())
    assert "one separator for each class against the rest" in found.notes[1]
    with figures.style():
        assert len(found.figure().axes) == 6


def test_three_classes_that_overlap_are_told() -> None:
    random = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = random.standard_normal((60, 2))
    found = compare(x, y, depths=(1, 2), folds=2, until=50.0)
    assert found.kind == "not separable"
    assert math.isnan(found.accuracy["ℓ2 max margin"])


def test_a_held_out_share_is_judged_once() -> None:
    table = passengers(200)
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table)
    found = compare(frame.drop(columns="survived"), table["survived"], held_out=0.25, **FEW)
    assert len(found.arrays["judged_label"]) == 50
    assert all(math.isnan(value) for value in found.spread.values())
    with pytest.raises(InvalidInputError, match=r"held_out=0\.999 takes"):
        compare(frame.drop(columns="survived"), table["survived"], held_out=0.999, **FEW)
    x = frame.drop(columns="survived")
    with pytest.raises(InvalidInputError, match="test rows or held_out, not both"):
        compare(x, table["survived"], test=(x, table["survived"]), held_out=0.5, **FEW)


def test_paired_intervals_are_those_of_the_mean_difference() -> None:
    random = np.random.default_rng(0)
    one, other = (Candidate(n, (random.random(400) < p) * 1.0) for n, p in (("a", 0.8), ("b", 0.7)))
    scale = Scale(np.full(400, 1 / 400), "accuracy")
    mean, low, high = scale.lead(one, other)
    gap = one.right - other.right
    assert mean == pytest.approx(gap.mean())
    assert high - mean == pytest.approx(norm.ppf(0.975) * gap.std() / 20)
    assert mean - low == pytest.approx(high - mean)
    assert scale.lead(one, other, among=10)[1] < low


def test_ceilings_and_weights() -> None:
    x, labels = np.array([[1.0, 2], [1, 2], [1, 2], [0, 1]]), np.array([0, 1, 1, 0])
    assert twin_ceiling(x, labels) == 0.75
    assert telltale(np.array([[1.0], [math.nan], [3.0]]), np.array([0, 0, 1])).tolist() == [False]
    assert class_weights(labels, 3).sum() == pytest.approx(1)


@pytest.mark.parametrize("features", [1, 2, 5])
def test_telling_directions_are_uncorrelated(features) -> None:
    random = np.random.default_rng(features)
    rows, labels = random.standard_normal((50, features)), np.arange(50) % 2
    slopes = random.standard_normal((3, 1, features))
    seen = (rows - rows.mean(axis=0)) @ _axes(slopes, rows, labels).T
    assert seen[:, 0].std() == pytest.approx(1)
    if features > 1:
        assert seen[:, 1].std() == pytest.approx(1)
        assert abs(np.corrcoef(seen.T)[0, 1]) < 1e-9


def test_results_are_not_overwritten_in_silence(tmp_path, capsys) -> None:
    path = write(tmp_path / "people.csv", passengers(60))
    common = ["compare", str(path), "--label", "survived", "--out", str(tmp_path / "runs")]
    few = ["--engine", "serial", "--quiet", "--depths", "1", "--until", "50", "--folds", "2"]
    assert cli.main([*common, *few]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(("• Not separable", "• Separable", "• Quasi-separable"))
    assert "What was done to the data:" in printed
    assert cli.main([*common, *few, "--missing", "flag"]) == 2
    assert "overwrite them with --force" in capsys.readouterr().err
    assert cli.main([*common, *few, "--missing", "flag", "--drop", "id", "--force"]) == 0
    assert "age is missing" in (tmp_path / "runs" / "compare-people" / "report.json").read_text()


def test_two_threads_draw_and_compare(found) -> None:
    def work(seed: int) -> str:
        random = np.random.default_rng(seed)
        y = np.arange(24) % 2
        x = random.standard_normal((24, 2)) + y[:, None]
        here: Comparison = compare(x, y, depths=(1,), folds=2, until=10.0)
        figure = Figure()
        here.plot(figure.subplots(), panel="separators")
        figure.canvas.draw()
        return str(here)

    alone = [work(seed) for seed in range(2)]
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(work, range(2))) == alone
