"""`natgrad compare`: data of all kinds, real tables, and the laboratory around them."""

import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binomtest

from natgrad.errors import InvalidInputError, LabelError, ShapeError
from natgrad.experiments.compare import _cells, _tables, compare
from natgrad.experiments.compare._describe import used
from natgrad.experiments.compare._judge import wilson
from natgrad.experiments.compare.config import Compare, Data, Prepared
from natgrad.experiments.compare.draw import plain
from natgrad.experiments.compare.fit import compute, data_of, experiment
from natgrad.experiments.compare.result import comparison
from natgrad.fits import separators
from natgrad.flows import integrate
from natgrad.lab import figures
from natgrad.lab._run import Request, run
from natgrad.lab._store import config_file
from natgrad.lab._store.folder import RunFolder
from natgrad.lab._store.store import Store
from natgrad.lab.engines import Serial, start_engine
from natgrad.lab.sweep import Sweeper

FEW = {"depths": (1, 2), "folds": 2, "until": 1e3}
LIMITS = ("ℓ2 max margin", "ℓ1 max margin")


def blobs(n: int, gap: float, seed: int = 0, dim: int = 3):
    """Two Gaussian clouds, `gap` apart along the first axis."""
    random = np.random.default_rng(seed)
    y = np.arange(n) % 2
    x = random.standard_normal((n, dim))
    x[:, 0] += gap * (2 * y - 1)
    return x, y


def write(path: Path, x, y) -> Path:
    lines = [",".join([*(f"f{k}" for k in range(x.shape[1])), "kind"])]
    lines += [
        ",".join([*map(repr, row.tolist()), str(mark)]) for row, mark in zip(x, y, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def here(cells, title=""):
    return [cell.run() for cell in cells]


@pytest.fixture(scope="module")
def separable():
    return compare(*blobs(30, 4.0), **FEW)


def test_separable_data(separable) -> None:
    assert separable.kind == "separable"
    assert not separable.rank_deficient
    assert all(separable.accuracy[name] == 1 for name in separable.methods)
    best = separable.margin["ℓ2 max margin"]
    assert all(margin <= best * (1 + 1e-9) for margin in separable.margin.values())
    assert separable.margin["EGD L=1"] > 0


def test_angles_are_those_between_the_coefficients(separable) -> None:
    unit = separable.coefficients
    assert np.allclose(np.linalg.norm(unit, axis=1), 1)
    exact = np.degrees(np.arccos(np.clip(unit[0] @ unit[3], -1, 1)))
    assert separable.angles[0, 3] == pytest.approx(exact, abs=1e-6)
    assert separable.features == ("intercept", "0", "1", "2")


def test_the_summary_names_methods_and_kind(separable) -> None:
    text = str(separable)
    assert "The data are separable with an intercept" in text
    assert "EGD L=2" in text
    assert "100.0 %" in text


def test_data_that_are_not_separable_have_a_finite_optimum() -> None:
    found = compare(*blobs(60, 0.4), **FEW)
    assert found.kind == "not separable"
    assert all(math.isnan(found.accuracy[name]) for name in LIMITS)
    optimum = found.methods.index("limit of NGD")
    for name in ("EGD L=1", "EGD L=2", "NGD"):  # all have the same optimum
        assert found.angles[found.methods.index(name), optimum] < 0.5
    assert "none: not separable" in str(found)


def test_quasi_separable_data() -> None:
    x, y = blobs(30, 4.0)
    x, y = np.vstack([x, [[0, 0, 0]] * 4]), np.append(y, [0, 1, 0, 1])  # both classes at one point
    found = compare(x, y, **FEW, standardize=False, intercept=False)
    assert found.kind == "quasi-separable"
    assert math.isnan(found.margin["ℓ2 max margin"])
    assert not math.isnan(found.accuracy["limit of NGD"])


def test_rank_deficient_data() -> None:
    x, y = blobs(30, 4.0)
    found = compare(np.hstack([x, x[:, :2] @ [[1.0], [1.0]]]), y, **FEW)
    assert (found.rank, found.rank_deficient) == (4, True)
    assert "rank-deficient: rank 4, 5 columns" in found.notes[0]
    assert found.accuracy["NGD"] == 1


def test_breast_cancer_is_separable_only_with_an_intercept() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    table = datasets.load_breast_cancer()
    found = compare(table.data, table.target, names=list(table.feature_names), **FEW)
    assert found.kind == "separable"
    assert "separable with an intercept, and not separable without" in found.notes[0]
    assert found.features[1] == "mean radius"
    for name in found.methods:
        assert found.accuracy[name] > 0.92, name
        assert found.interval[name][0] < found.accuracy[name] < found.interval[name][1]


def test_digits_may_be_taken_two_by_two() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_digits(return_X_y=True)
    found = compare(x, y, classes=("0", "1"), **FEW)
    assert found.kind == "separable"
    assert any("a copy of" in step.done for step in found.steps)
    assert min(found.accuracy.values()) > 0.95
    assert sum(step.done == "left out: it has one value" for step in found.steps) > 5
    with pytest.raises(LabelError, match="holds 100 different labels"):
        compare(x[:100], np.arange(100))


def test_a_test_table_replaces_cross_validation() -> None:
    x, y = blobs(200, 1.0)
    found = compare(x[:60], y[:60], test=(x[60:], y[60:]), **FEW)
    k = found.methods.index("least squares")
    beta = found.coefficients[k]
    center, scale = x[:60].mean(axis=0), x[:60].std(axis=0)
    guess = beta[0] + (x[60:] - center) / scale @ beta[1:] > 0
    assert found.accuracy["least squares"] == pytest.approx((guess == (y[60:] == 1)).mean())
    assert all(math.isnan(value) for value in found.spread.values())
    assert "test table over 140 rows" in " ".join(found.notes)


def test_standardization_uses_the_rows_fitted_alone() -> None:
    x, y = blobs(12, 2.0)
    how = Prepared(folds=3)
    loaded = _tables.gather({"a": x[:, 0], "b": x[:, 1], "y": y}, "y", how)
    rows = _cells.part(loaded, how, 0)
    assert rows.x[:, 1:].mean(0).abs().max() < 1e-12
    assert np.allclose(rows.x[:, 1:].std(0, correction=0), 1)
    assert bool((rows.x[:, 0] == 1).all())
    assert len(rows.test_y) == 4
    assert len(rows.inputs) == 12


def test_folds_share_out_both_classes() -> None:
    y = np.array([1] * 7 + [0] * 11)
    fold = _cells.folds(y, Prepared(folds=3, seed=2))
    counts = [[int(((fold == k) & (y == v)).sum()) for k in range(3)] for v in (0, 1)]
    assert counts == [[4, 4, 3], [3, 2, 2]]


def test_unlabeled_rows_move_the_population_fisher_alone() -> None:
    x, y = blobs(30, 1.5)
    far = np.random.default_rng(1).standard_normal((200, 3)) * [1, 5, 1]
    without, with_them = (compare(x, y, unlabeled=u, **FEW) for u in (None, far))
    k = without.methods.index("NGD population")
    others = [np.delete(found.coefficients, k, 0) for found in (without, with_them)]
    assert np.array_equal(*others, equal_nan=True)
    assert np.linalg.norm(without.coefficients[k] - with_them.coefficients[k]) > 1e-3


@pytest.mark.parametrize(("share", "n"), [(0.0, 10), (0.7, 30), (1.0, 25)])
def test_intervals_are_wilson_s(share: float, n: int) -> None:
    exact = binomtest(round(share * n), n).proportion_ci(method="wilson")
    assert np.allclose(wilson(share, n), (exact.low, exact.high))


def test_features_that_carry_the_weight_are_counted() -> None:
    assert used(np.array([3.0, 0.0, 0.1])) == 1
    assert used(np.ones(10)) == 10
    assert math.isnan(used(np.array([math.nan, 1.0])))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"folds": 1}, "folds must be an integer of at least 2, but is 1"),
        ({"folds": 16}, "16 folds need as many rows of each class"),
        ({"depths": (0,)}, "each of depths must be an integer of at least 1"),
        ({"until": -1.0}, "until must be a number above 0"),
        ({"until_": 1.0}, "compare has no option 'until_'. Did you mean 'until'"),
    ],
)
def test_bad_options(change, words) -> None:
    with pytest.raises(InvalidInputError, match=words):
        compare(*blobs(30, 3.0), **(FEW | change))


def test_bad_arrays() -> None:
    x, y = blobs(30, 3.0)
    with pytest.raises(ShapeError, match="30 rows of features, but 29 labels"):
        compare(x, y[:-1], **FEW)
    with pytest.raises(ShapeError, match=r"shape \(n, d\)"):
        compare(x[:, 0], y, **FEW)
    with pytest.raises(InvalidInputError, match="must be numbers"):
        compare([["a", "b"]] * 4, [0, 1] * 2, **FEW)
    with pytest.raises(InvalidInputError, match="3 different names"):
        compare(x, y, names=["a", "b"], **FEW)


def test_a_data_frame_names_its_features() -> None:
    pandas = pytest.importorskip("pandas")
    x, y = blobs(20, 4.0)
    found = compare(pandas.DataFrame(x, columns=["u", "v", "w"]), pandas.Series(y), **FEW)
    assert found.features == ("intercept", "u", "v", "w")


def test_through_the_laboratory(tmp_path: Path) -> None:
    x, y = blobs(24, 2.0)
    path = write(tmp_path / "my $table.csv", x, y)
    one = experiment(data_of(path, "kind"), **FEW)
    config = one.presets["quick"]

    def sweep() -> Sweeper:
        return Sweeper(Serial(), Store(tmp_path / "store"))

    report = run(Request(one, "quick", config), tmp_path / "runs", sweep())
    folder = tmp_path / "runs" / one.folder
    assert report["claims"] == []
    assert report["departures"][0].startswith("Separable: ")
    assert report["story"].startswith("Separable: ")
    assert "Best on held-out rows: " in report["story"]
    assert any(one.startswith("The data are separable") for one in report["departures"])
    assert (folder / "figure.png").stat().st_size > 10_000
    again = sweep()
    there = comparison(config, one.compute(config, again))
    assert again.reused == again.done > 0
    assert there.accuracy == compare(x, y, names=["f0", "f1", "f2"], **FEW).accuracy
    assert config_file.build(folder / "config.toml", Compare) == config
    with figures.style():
        assert len(one.draw(config, RunFolder(folder).arrays()).axes) == 6


def test_a_file_that_changes_under_way_is_not_trusted(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", *blobs(20, 3.0))
    data = data_of(path, "kind")
    write(path, *blobs(20, 3.0, seed=1))
    with pytest.raises(InvalidInputError, match="has changed since the run began"):
        _tables.load(data, Prepared())
    with pytest.raises(InvalidInputError, match="there is no file"):
        data_of(tmp_path / "gone.csv", "kind")


def test_tables_in_files_test_and_unlabeled(tmp_path: Path) -> None:
    x, y = blobs(60, 2.0)
    paths = [
        write(tmp_path / f"{name}.csv", x[part], y[part])
        for name, part in (
            ("train", slice(0, 30)),
            ("test", slice(30, 50)),
            ("more", slice(50, 60)),
        )
    ]
    with paths[1].open("a") as file:
        file.write("1.0,,2.0,0\n1.0,1.0,2.0,neither\n")
    one = experiment(data_of(paths[0], "kind", test=paths[1], unlabeled=paths[2]), **FEW)
    config = one.presets["quick"]
    arrays = one.compute(config, here)
    assert int(arrays["judged_rows"]) == 21  # a gap in a test row is filled
    loaded = _tables.load(config.data, config.how)
    assert len(_cells.part(loaded, config.how, None).inputs) == 61
    assert "1 test rows lack a feature or a known label and were left out." in loaded.notes


def test_the_picture_takes_any_name() -> None:
    x, y = blobs(20, 2.0)
    found = experiment(Data(path="", digest="x", label="y"), **FEW)
    names = {"$\\frac$": x[:, 0], "a" * 99: x[:, 1], "_^{}": x[:, 2], "y": y}
    loaded = _tables.gather(names, "y", Prepared(folds=2))
    config = found.presets["quick"]
    arrays = compute(config, here, loaded)
    with figures.style():
        assert set(figures.render(found.draw(config, arrays))) >= {"figure.png", "figure.svg"}
    assert plain("a" * 99).endswith("…")


def test_threads_do_not_share_tables() -> None:
    """Each thread has its own data, and gets the same answer as without other threads."""
    tables = [blobs(16 + 2 * k, 1.0, seed=k, dim=2) for k in range(4)]
    how = {"depths": (1,), "folds": 2, "until": 10.0}
    alone = [str(compare(*table, **how)) for table in tables]
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(lambda table: str(compare(*table, **how)), tables))
    assert together == alone


def test_tables_in_memory_reach_other_processes(tmp_path: Path) -> None:
    x, y = blobs(20, 2.0)
    columns = {f"f{k}": x[:, k] for k in range(3)} | {"y": y}
    loaded = _tables.gather(columns, "y", Prepared(folds=2))
    data = Data(path="", digest="of these numbers", label="y")
    config = experiment(data, **FEW).presets["quick"]
    with start_engine("local", workers=1) as engine:
        arrays = compute(config, Sweeper(engine, Store(tmp_path)), loaded)
    there, local = comparison(config, arrays, loaded), compute(config, here, loaded)
    assert there.accuracy == comparison(config, local, loaded).accuracy
    assert np.array_equal(arrays["coefficients"], local["coefficients"], equal_nan=True)


def test_a_flow_that_stalls_is_said(monkeypatch) -> None:
    x, y = blobs(20, 3.0)
    how = {"depths": (1, 2), "until": 1e4, "folds": 2}
    assert not [note for note in compare(x, y, **how).notes if "ended early" in note]

    def impatient(*arguments, **options):
        return integrate(*arguments, **(options | {"max_evaluations": 30}))

    monkeypatch.setattr(separators, "integrate", impatient)
    found = compare(x, y, **how)
    said = [note for note in found.notes if "ended early" in note]
    for name, until in (("EGD L=1", "10000"), ("EGD L=2", "10000"), ("NGD population", "10")):
        (sentence,) = [note for note in said if note.startswith(f"The flow of {name} ended early")]
        assert f"instead of t = {until};" in sentence
        assert all(part in sentence for part in ("(all rows)", "(fold 1)", "(fold 2)"))
    assert len(said) == 3  # the closed forms do not stall
    assert said[0] in found.lines()
