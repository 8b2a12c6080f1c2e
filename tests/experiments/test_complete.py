import csv
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
import torch

from natgrad.data._files import digest_of
from natgrad.data.completion import low_rank
from natgrad.data.triples import index_table, make_table
from natgrad.errors import InvalidInputError
from natgrad.experiments.complete import _tables, complete
from natgrad.experiments.complete._choose import _Setting, _settings
from natgrad.experiments.complete.config import (
    SIZES,
    Centering,
    Complete,
    Data,
    Prepared,
    Preset,
    TableOptions,
)
from natgrad.experiments.complete.fit import complete_table, completed_matrix, compute, experiment
from natgrad.experiments.complete.result import METHODS, completed
from natgrad.fits import Center, Entries, completion, fit_product
from natgrad.lab._store.store import Store
from natgrad.lab.arrays import Arrays
from natgrad.lab.engines import Serial, start_engine
from natgrad.lab.experiment import PRESETS
from natgrad.lab.sweep import Sweeper
from tests.helpers import randn

# Entries of a low-rank matrix that were not observed can exceed the observed range.
FEW = {"depths": (2, 3), "scales": (1e-3,), "ranks": (2, 3), "clip": False}


def sweep(given, title=""):
    return [cell.run() for cell in given]


def table(problem):
    rows, columns = problem.positions.T.tolist()
    return rows, columns, problem.values.tolist()


@pytest.fixture(scope="module")
def problem():
    return low_rank(shape=(40, 30), rank=2, observed=500, seed=0)


@pytest.fixture(scope="module")
def found(problem):
    return complete(*table(problem), **FEW)


def test_a_low_rank_matrix_is_found(problem, found):
    assert found.matrix.shape == (40, 30)
    beta = torch.from_numpy(found.matrix)
    assert problem.test_error(beta) < 1e-3
    assert problem.train_error(beta) < 1e-10  # observed entries are kept
    assert 1.5 < found.effective_rank < 3
    assert found.singular_values.shape == (30,)


def test_its_error_is_that_of_entries_it_did_not_see(problem, found):
    assert set(found.test_error) == set(METHODS)
    assert found.test_entries == 50
    deep = found.test_error["deep product"]
    assert deep < 0.2 * found.test_error["row and column means"]
    assert deep < found.test_error["nuclear norm"]
    assert math.sqrt(problem.test_error(torch.from_numpy(found.matrix))) < 2 * deep + 1e-2


def test_entries_by_label_and_summary(problem, found):
    assert found.predict(3, 7) == pytest.approx(float(found.matrix[3, 7]))
    with pytest.raises(InvalidInputError, match="no row 77"):
        found.predict(77, 0)
    many = found.predict([3, 5], ["7", "2"])
    assert many == pytest.approx(found.matrix[[3, 5], [7, 2]])
    assert found.predict(np.array([3, 5]), 7) == pytest.approx(found.matrix[[3, 5], 7])
    with pytest.raises(InvalidInputError, match="2 rows and 3 columns"):
        found.predict([3, 5], [1, 2, 3])
    over_columns = float(found.matrix[3].mean())
    assert found.predict(3, "new", unknown="means") == pytest.approx(over_columns, rel=1e-5)
    text = "\n".join(found.lines())
    assert repr(found) == text
    assert "40 × 30 matrix, 500 entries" in found._repr_html_()
    assert "nine of ten" in text
    assert "40 × 30 matrix" in text
    assert text.count("(best)") == 1
    assert "effective rank" in text


def test_intervals_contain_their_share():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 50)) + rng.normal(size=(60, 50))
    seen = rng.random((60, 50)) < 0.5
    found = complete(
        *np.argwhere(seen).T, truth[seen], clip=False, depths=(2,), scales=(1e-3,), ranks=(3,)
    )
    i, j = np.argwhere(~seen).T
    for level in (0.5, 0.9):
        low, high = found.interval(i, j, level=level)
        inside = ((low <= truth[~seen]) & (truth[~seen] <= high)).mean()
        assert abs(inside - level) < 0.05  # 1500 entries: standard error .01
    low, high = found.interval(3, 7)
    assert low < found.predict(3, 7) < high
    with pytest.raises(InvalidInputError, match="level"):
        found.interval(3, 7, level=1.0)
    axes = found.plot()
    assert [text.get_text() for text in axes.get_yticklabels()] == list(found.test_error)


def test_a_large_table_takes_the_cheap_setting_among_good_ones():
    deep = [_Setting("means", depth, scale) for depth in (2, 3) for scale in (1e-3, 1e-6)]
    errors = np.array([[[1.5, 1.01], [1.02, 1.0]]])
    raced = [{"evaluations": np.asarray(k)} for k in (100, 200, 300, 1000)]
    assert _settings(deep, raced, errors, large=False) == [deep[3]]
    assert _settings(deep, raced, errors, large=True) == [deep[1]]


def test_the_top_of_a_row_leaves_observed_entries_out(problem, found):
    top = found.top(3, 4)
    hidden = (~problem.observed[3]).nonzero().flatten().tolist()
    order = sorted(hidden, key=lambda j: -found.matrix[3, j])
    assert [label for label, _ in top] == [found.columns[j] for j in order[:4]]
    assert len(found.top(3, 1000)) == len(hidden)


def test_predictions_stay_in_the_observed_range_by_default(problem):
    few = {"depths": (3,), "scales": (1e-3,), "ranks": (2,), "center": "none"}
    found = complete(*table(problem), **few)
    assert float(problem.truth.min()) < found.matrix.min() - 0.5
    assert found.matrix.min() == np.float32(problem.values.min())
    assert found.matrix.max() <= np.float32(problem.values.max())


def test_a_large_table_races_on_a_block(monkeypatch, problem):
    monkeypatch.setattr(_tables, "_RACE", 300)
    loaded = _tables.divide(index_table(make_table(*table(problem))), None, Prepared())
    block, judged = loaded.race
    assert block.shape == judged.shape != loaded.train.shape
    assert 60 < len(block) < 300
    few = {"depths": (2,), "scales": (1e-3,), "ranks": (2,), "center": "none", "clip": False}
    found = complete(*table(problem), **few)
    assert found.test_error["deep product"] < 0.2 * found.test_error["row and column means"]


def test_saved_files_hold_the_matrix(found, tmp_path):
    found.save(tmp_path / "m.csv")
    lines = list(csv.reader((tmp_path / "m.csv").read_text().splitlines()))
    assert lines[0] == ["", *found.columns]
    assert [line[0] for line in lines[1:]] == list(found.rows)
    read = np.array([[float(x) for x in line[1:]] for line in lines[1:]])
    np.testing.assert_allclose(read, found.matrix, rtol=1e-6)
    found.save(tmp_path / "long.csv", layout="long")
    long = list(csv.DictReader((tmp_path / "long.csv").read_text().splitlines()))
    values = np.array([float(line["value"]) for line in long]).reshape(found.matrix.shape)
    assert np.array_equal(values, read)
    assert sum(line["observed"] == "1" for line in long) == 500
    with pytest.raises(InvalidInputError, match=r"long layout is written as \.csv or \.parquet"):
        found.save(tmp_path / "long.safetensors", layout="long")
    found.save(tmp_path / "m.safetensors")
    assert np.array_equal(Arrays.load(tmp_path / "m.safetensors")["completed"], found.matrix)
    with pytest.raises(InvalidInputError, match=r"\.csv, \.parquet or \.safetensors"):
        found.save(tmp_path / "m.xlsx")


def test_parquet_is_written_where_pyarrow_is_installed(found, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is in the extra `tables`")
    found.save(tmp_path / "m.parquet")
    read = parquet.read_table(tmp_path / "m.parquet")
    assert read.column("row").to_pylist() == list(found.rows)
    assert read.column(found.columns[4]).to_pylist() == found.matrix[:, 4].tolist()
    found.save(tmp_path / "long.parquet", layout="long")
    long = parquet.read_table(tmp_path / "long.parquet").to_pydict()
    pairs = [(row, column) for row in found.rows for column in found.columns]
    assert list(zip(long["row"], long["column"], strict=True)) == pairs
    assert np.array_equal(np.array(long["value"], np.float32), found.matrix.ravel())
    assert sum(long["observed"]) == 500


def test_noise_is_not_fitted(problem):
    """Held-out entries stop the flow before it learns the noise."""
    noise = torch.randn(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    rows, columns, values = table(problem)
    noisy = (torch.tensor(values) + 0.5 * noise).tolist()
    found = complete(rows, columns, noisy, **FEW)
    error = math.sqrt(problem.test_error(torch.from_numpy(found.matrix)))
    assert error < 0.45
    judged = found.test_error["deep product"]
    assert 0.45 < judged < 0.8  # noise included
    # At the end of the flow the noise is fitted too.
    entries = Entries((40, 30), problem.positions, torch.tensor(noisy, dtype=torch.float64))
    fit = fit_product(entries, center="none", depth=2, scale=1e-3, hidden=30, seed=0)
    assert math.sqrt(problem.test_error(fit.model.matrix())) > 1.2 * error


def test_row_and_column_means_are_a_method_and_a_center():
    a, b = randn(30, seed=1), randn(25, seed=2)
    truth = 5 + a[:, None] + b[None, :]
    chosen = torch.rand(30, 25, generator=torch.Generator().manual_seed(3)) < 0.5
    rows, columns = chosen.nonzero().T.tolist()
    found = complete(rows, columns, truth[chosen].tolist(), center="means", **FEW)
    assert found.test_error["row and column means"] < 0.3
    assert np.abs(found.matrix - truth.numpy()).max() < 1.5


def test_test_entries_of_their_own(problem):
    rows, columns, values = table(problem)
    hidden = (~problem.observed).nonzero()[::7]
    true = problem.truth[hidden[:, 0], hidden[:, 1]]
    test = ([*hidden[:, 0].tolist(), 99], [*hidden[:, 1].tolist(), 0], [*true.tolist(), 1.0])
    found = complete(rows, columns, values, test=test, **FEW)
    assert found.test_entries == len(hidden) + 1
    assert any("1 test entries lie in rows or columns" in note for note in found.notes)
    # Row 99 has no entry: column means predict it.
    entries = Entries((41, 30), problem.positions, problem.values)
    means = Center.of(entries, "means")
    assert found.matrix[-1] == pytest.approx(means.everywhere()[-1].numpy(), abs=1e-5)
    cold = found.predict("99", "0") - 1.0
    gap = np.append(found.matrix[hidden[:, 0], hidden[:, 1]] - true.numpy(), cold)
    # The same model: with a test file nothing is held back from the completed matrix.
    assert found.test_error["deep product"] == pytest.approx(math.sqrt((gap**2).mean()), rel=1e-3)


def test_duplicates_and_missing_values_are_noted(problem):
    rows, columns, values = table(problem)
    more = ([*rows, rows[0], 0], [*columns, columns[0], 1], [*values, values[0], math.nan])
    found = complete(*more, **FEW)
    assert [note.split()[0] for note in found.notes] == ["1", "1"]


def spread(n, rows=10):
    return [k % rows for k in range(n)], [k // rows for k in range(n)]


@pytest.mark.parametrize(
    ("triples", "said"),
    [
        ((*spread(29), [3.0] * 29), "every observed value is 3"),
        ((*spread(15), list(range(15))), "15 entries are too few"),
        (([0] * 30, list(range(30)), list(range(30))), "two rows and two columns"),
        ((*spread(50), list(range(50))), "all 50 entries"),
        (([k for k in range(6000)], [k for k in range(6000)], range(6000)), "are refused"),
        ((["a"], ["b"], [None]), "all are missing"),
    ],
    ids=["constant", "few", "one row", "full", "large", "missing"],
)
def test_what_cannot_be_completed_is_said_in_a_sentence(triples, said):
    with pytest.raises(InvalidInputError, match=said):
        complete(*triples)


@pytest.mark.parametrize(
    "options",
    [
        {"depths": (1,)},
        {"held_out": 0.7},
        {"held_out": float("nan")},
        {"seed": 1.5},
        {"seed": -1},
        {"scales": ()},
        {"hidden": 0},
        {"dephts": (2,)},
    ],
)
def test_bad_options_are_refused(problem, options):
    with pytest.raises(InvalidInputError):
        complete(*table(problem), **options)


def test_fewer_entries_than_rows_and_columns_is_noted():
    rows, columns = [*range(20), *range(10)], [*range(20), *range(10, 20)]
    found = complete(rows, columns, [float(k % 7) for k in range(30)], **FEW)
    assert any("not even a matrix of rank one" in note for note in found.notes)


def test_as_an_experiment_of_the_laboratory(problem, tmp_path):
    rows, columns, values = table(problem)
    path = tmp_path / "ratings.csv"
    lines = (f"u{r},i{c},{v!r}" for r, c, v in zip(rows, columns, values, strict=True))
    path.write_text("user,item,stars\n" + "\n".join(lines))
    data = Data(path=str(path), digest=digest_of(path))
    this = experiment(data, clip=False)
    assert this.folder == "complete-ratings"
    config = this.presets["smoke"]
    arrays = this.compute(config, sweep)
    assert all(claim.holds("smoke") is None for claim in this.claims(config, arrays))
    assert len(this.draw(config, arrays).axes) == 3
    assert this.departures(config, arrays) == ()
    loaded = _tables.load(config.data, config.how)
    found = completed(arrays, completed_matrix(config, arrays, sweep), loaded)
    where = [int(label[1:]) for label in found.rows], [int(label[1:]) for label in found.columns]
    np.testing.assert_allclose(found.matrix, problem.truth.numpy()[np.ix_(*where)], atol=0.5)
    path.write_text("user,item,stars\na,b,1\n")
    _tables.load.cache_clear()
    with pytest.raises(InvalidInputError, match="has changed"):
        this.compute(config, sweep)


@pytest.mark.slow
def test_the_command_leaves_report_picture_and_matrix(problem, tmp_path):
    rows, columns, values = table(problem)
    lines = [f"{r},{c},{v!r}" for r, c, v in zip(rows, columns, values, strict=True)]
    (tmp_path / "table.csv").write_text("\n".join(line for k, line in enumerate(lines) if k % 10))
    (tmp_path / "test.csv").write_text("\n".join(lines[::10]))
    sweep = Sweeper(Serial(), Store(tmp_path / "runs" / "store"))
    options = TableOptions(test=tmp_path / "test.csv", center="none", scales=(1e-3,))
    out = tmp_path / "runs"
    outcome = complete_table(tmp_path / "table.csv", options, preset="smoke", out=out, sweep=sweep)
    folder = out / "complete-table"
    assert outcome.saved == folder / "completed.csv"
    assert {path.name for path in folder.iterdir()} >= {
        "arrays.safetensors", "completed.csv", "config.toml", "figure.png", "report.json"
    }  # fmt: skip
    assert outcome.completed.test_entries == 50
    assert outcome.report["figure"] == "complete/table"
    again = Sweeper(Serial(), Store(tmp_path / "runs" / "store"))
    complete_table(tmp_path / "table.csv", options, preset="smoke", out=out, sweep=again)
    assert again.reused == again.done == sweep.done
    other = replace(options, seed=1)
    with pytest.raises(InvalidInputError, match="--force"):
        complete_table(tmp_path / "table.csv", other, preset="smoke", out=out, sweep=again)
    forced = replace(other, force=True, long=True)
    complete_table(tmp_path / "table.csv", forced, preset="smoke", out=out, sweep=again)
    assert (folder / "completed-long.csv").is_file()
    with pytest.raises(InvalidInputError, match="there is no file"):
        complete_table(tmp_path / "no.csv", options, preset="smoke", out=out, sweep=again)
    nowhere = TableOptions(save=tmp_path / "nowhere" / "m.csv")
    with pytest.raises(InvalidInputError, match="there is no folder"):
        complete_table(tmp_path / "table.csv", nowhere, preset="smoke", out=out, sweep=again)


def test_options_have_the_centers_of_the_fits_and_the_presets_of_the_laboratory():
    assert get_args(Centering) == get_args(completion.Centering)
    assert get_args(Preset) == PRESETS == tuple(SIZES)


@pytest.mark.parametrize("preset", ["smoke", "quick", "paper"])
def test_presets_are_valid_and_grow(preset):
    data = Data(path="x.csv", digest="")
    config = experiment(data, center="none").presets[preset]
    assert isinstance(config, Complete)
    assert config.center == "none"


def test_a_real_table():
    """The digits that ship with scikit-learn: 8 × 8 pictures as rows, 40 % of pixels seen."""
    datasets = pytest.importorskip("sklearn.datasets")
    pixels = torch.from_numpy(datasets.load_digits().data[:200])
    pixels = pixels[:, (pixels != 0).any(0)]
    seen = torch.rand(pixels.shape, generator=torch.Generator().manual_seed(0)) < 0.4
    rows, columns = seen.nonzero().T.tolist()
    found = complete(rows, columns, pixels[seen].tolist(), depths=(2, 3), scales=(1e-3,))
    assert found.matrix.shape == tuple(pixels.shape)
    error = float((torch.from_numpy(found.matrix) - pixels)[~seen].square().mean().sqrt())
    assert error < 0.9 * found.test_error["row and column means"]
    assert found.test_error["deep product"] < 1.1 * min(found.test_error.values())


@pytest.mark.slow
def test_two_thousand_squared():
    problem = low_rank(shape=(2000, 2000), rank=5, observed=150_000, seed=0)
    rows, columns = problem.positions.T.tolist()
    few = {"center": "none", "depths": (2,), "scales": (1e-3,), "ranks": (5,), "hidden": 16}
    found = complete(rows, columns, problem.values.tolist(), **few)
    assert problem.test_error(torch.from_numpy(found.matrix)) < 0.05


def small(seed):
    """Two thirds of a small matrix of rank one, with a little noise."""
    random = np.random.default_rng(seed)
    a, b = random.standard_normal((2, 9 + seed))
    seen = [(i, j) for i in range(9 + seed) for j in range(9 + seed) if (i + 2 * j) % 3]
    noise = 0.1 * random.standard_normal(len(seen))
    return [i for i, _ in seen], [j for _, j in seen], [a[i] * b[j] for i, j in seen] + noise


@pytest.mark.slow
def test_threads_do_not_share_tables():
    """Each thread has its own data, and gets the same answer as without other threads."""
    few = {"depths": (2,), "scales": (1e-2,), "ranks": (1,), "max_evaluations": 100}
    tables = [small(seed) for seed in range(6)]
    alone = [complete(*given, **few) for given in tables]
    with ThreadPoolExecutor(6) as threads:
        together = list(threads.map(lambda given: complete(*given, **few), 2 * tables))
    for one, other in zip(2 * alone, together, strict=True):
        assert one.test_error == other.test_error
        assert np.array_equal(one.matrix, other.matrix)


def whole(config, sweep, loaded):
    arrays = compute(config, sweep, loaded)
    return completed(arrays, completed_matrix(config, arrays, sweep, loaded), loaded)


def test_a_table_in_memory_reaches_other_processes(tmp_path):
    loaded = _tables.divide(index_table(make_table(*small(0))), None, Prepared())
    data = Data(path="", digest="of these numbers")
    config = Complete(data=data, depths=(2,), scales=(1e-2,), ranks=(1,), max_evaluations=100)
    with start_engine("local", workers=1) as engine:
        there = Sweeper(engine, Store(tmp_path))
        found = whole(config, there, loaded)
    here = whole(config, sweep, loaded)
    assert found.test_error == here.test_error
    assert np.array_equal(found.matrix, here.matrix)
