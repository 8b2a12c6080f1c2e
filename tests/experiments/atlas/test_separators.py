"""The atlas of separators: the smoke preset, its claims, its table, its picture, its command."""

import json

import numpy as np
import pytest
import torch

from natgrad import cli
from natgrad.diagnostics import margin
from natgrad.experiments.atlas.separators.config import EXPERIMENT
from natgrad.experiments.atlas.separators.goals import GOALS, NORMS, diagonal_goal, goal
from natgrad.experiments.atlas.separators.methods import METHODS
from natgrad.experiments.atlas.separators.rows import BuiltIn, batch_of
from natgrad.experiments.atlas.separators.table import lines, text
from natgrad.lab import figures
from natgrad.lab.experiment import in_this_process
from natgrad.limits import max_margin

HOW = ("--preset", "smoke", "--engine", "serial", "--quiet")


@pytest.fixture(scope="module")
def found():
    config = EXPERIMENT.presets["smoke"]
    return config, EXPERIMENT.compute(config, in_this_process)


@pytest.fixture
def write(tmp_path):
    """Write a table of two features, and return its path."""

    def written(x, marks):
        rows = [f"{a!r},{b!r},{mark}" for (a, b), mark in zip(x.tolist(), marks, strict=True)]
        path = tmp_path / "plants.csv"
        path.write_text("\n".join(["height,width,kind", *rows]))
        return path

    return written


def test_every_claim_is_as_expected(found) -> None:
    config, arrays = found
    judged = EXPERIMENT.claims(config, arrays)
    assert len({claim.id for claim in judged}) == len(judged)
    assert sum(claim.holds("smoke") is not None for claim in judged) >= 8
    for claim in judged:
        assert claim.as_expected("smoke"), (claim.id, claim.value)


def test_claims_on_rates_follow_the_intervals(found) -> None:
    config, arrays = found
    many = len(config.seeds)

    def values(intervals):
        rates = np.full((len(METHODS), many, 3), np.nan)
        for name, (low, high) in intervals.items():
            rates[list(METHODS).index(name)] = [(low + high) / 2, low, high]
        changed = {name: arrays[name] for name in arrays} | {"rates": rates}
        return {c.id: c.value for c in EXPERIMENT.claims(config, changed)}

    single, fast = "Adam, one sample", "Adam, β₂ = .95"
    left = values({single: (-0.1, 0.2), fast: (0.3, 0.6), "sign descent": (0.4, 0.6)})
    assert left["adam-one-sample-stops"] == left["adam-falls"] == left["rate-sign"] == 1
    assert left["rate-normalized"] == 0  # no interval: not confirmed
    still = values({single: (-0.1, 0.3), fast: (-0.1, 0.6), "sign descent": (0.51, 0.6)})
    assert still["adam-one-sample-stops"] == still["adam-falls"] == still["rate-sign"] == 0


def test_the_gap_to_a_limit_that_is_left_is_measured(found) -> None:
    _, arrays = found
    row = list(METHODS).index("Adam, one sample")
    ends = arrays["own_share"][row, :, -1]
    assert np.isfinite(ends).all()
    assert (ends == arrays["shares"][row, :, GOALS.index("ℓ∞ margin")]).all()
    assert METHODS["Adam, one sample"].measured("not separable") is None


def test_no_share_exceeds_one_and_own_certificates_prove_no_more(found) -> None:
    _, arrays = found
    assert np.nanmax(arrays["shares"]) <= 1 + 1e-9
    proved, shares = arrays["proved"], arrays["norm_shares"]
    assert np.isfinite(proved).sum() > 10
    assert (np.nan_to_num(proved, nan=-1) <= shares + 1e-9).all()


def test_the_share_of_a_norm_is_that_of_the_largest_margin() -> None:
    data = BuiltIn(30, 20, 4, 5)
    x, y = batch_of(data)
    beta = torch.randn(1, 20, dtype=x.dtype, generator=torch.Generator().manual_seed(1))
    beta = beta * 0.01 + goal(data, "ℓ2 margin").solution
    for name, p in NORMS.items():
        best = goal(data, name)
        share = margin(beta[0], x, y, p) / margin(best.solution, x, y, p)
        assert float(best.shares(beta, y[:, None] * x)) == pytest.approx(max(float(share), 0))
        assert best.certificate < 1e-8


def test_the_box_is_optimal_by_its_conditions() -> None:
    data = BuiltIn(30, 20, 4, 5)
    x, y = batch_of(data)
    b = goal(data, "box").solution
    g = -(torch.sigmoid(-y * (x @ b)) * y) @ x
    inside = b.abs() < 2 - 1e-6
    assert float(g[inside].abs().max()) < 1e-6 * float(g.abs().max())
    assert bool((g[~inside] * b[~inside] < 0).all())  # the loss falls only across the wall


def test_every_goal_of_a_method_is_computed() -> None:
    named = {m.goal(kind) for m in METHODS.values() for kind in ("separable", "not separable")}
    assert named - {None} == set(GOALS)


def test_the_table_decides_or_says_that_it_does_not(found) -> None:
    table = lines(found[1])
    by_name = dict(zip(METHODS, table, strict=True))
    assert by_name["natural gradient"].verdict == "reached"
    assert by_name["Adam, one sample"].verdict == "undecided"
    assert by_name["Adam, one sample"].limit is None
    assert by_name["diagonal Fisher"].limit == "own diagonal metric"
    assert by_name["diagonal Fisher"].certificate < 1e-8
    natural = by_name["natural gradient (square)"]
    step = 30 / found[0].steps  # Euler's steps shrink the gap by 1 − step each
    assert natural.law == "exponential"
    assert natural.rate == pytest.approx(-np.log1p(-step), rel=1e-3)
    assert by_name["normalized gradient"].verdict == "approaching"
    shown = text(table).splitlines()
    sources = {line.source for line in table}
    assert len(shown) == len(METHODS) + len(sources) + 3  # heads, an empty line, a note
    assert shown[len(METHODS)].endswith(f"[{len(sources)}]")
    assert shown[-2] == f"[{len(sources)}] {table[-1].source}"


def test_the_own_metric_of_the_diagonal_fisher_is_that_of_its_end() -> None:
    data = BuiltIn(30, 20, 4, 5)
    x, y = batch_of(data)
    end = 2 * goal(data, "ℓ2 margin").solution
    p = torch.sigmoid(x @ end)
    diagonal = (p * (1 - p)) @ x.square()
    found = diagonal_goal(x, y, end)
    dense = max_margin(x * diagonal.rsqrt(), y).solution * diagonal.rsqrt()
    assert float(found.degrees(dense)) < 1e-5
    assert found.certificate < 1e-8


def test_the_picture_has_both_panels(found) -> None:
    config, arrays = found
    with figures.style():
        drawn = figures.render(EXPERIMENT.draw(config, arrays))
    assert drawn["figure.png"][:4] == b"\x89PNG"
    assert np.isfinite(arrays["path"]).all()


def test_the_command_on_separable_data_of_ones_own(write, tmp_path, capsys) -> None:
    x = torch.randn(24, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[:, 0] += 0.5 * x[:, 0].sign()
    path = write(x, ["ash" if a > 0 else "elm" for a in x[:, 0].tolist()])
    out = tmp_path / "runs"
    asked = ["atlas", str(path), "--label", "kind", "--out", str(out), *HOW]
    assert cli.main([*asked, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["figure"] == "map/plants"
    assert told["departures"][0].startswith("The data are separable: 24 rows, 2 features")
    cells = {(c["optimizer"], c["parametrization"], c["loss"]): c for c in told["atlas"]}
    assert cells["gradient flow", "direct", "logistic"]["verdict"] == "reached"
    assert set(cells["K-FAC", "direct", "logistic"]) >= {
        "limit", "share", "certificate", "rate", "interval", "verdict", "source",
    }  # fmt: skip
    assert cli.main(asked) == 0  # from the store
    said = capsys.readouterr().out
    assert "nearest" in said
    assert "[1] Gunasekar" in said
    page = (out / "report.html").read_text("utf-8")
    assert "Table: 19 lines" in page
    assert "own diagonal metric" in page
    assert cli.main(["draw", str(out / "map-plants")]) == 0


def test_the_command_on_data_that_are_not_separable(write, tmp_path, capsys) -> None:
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    noise = torch.randn(40, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    path = write(x, ["ash" if a > 0 else "elm" for a in (x[:, 0] + noise).tolist()])
    asked = ["atlas", str(path), "--label", "kind", "--out", str(tmp_path), *HOW, "--json"]
    assert cli.main(asked) == 0
    told = json.loads(capsys.readouterr().out)
    natural = [c for c in told["atlas"] if c["optimizer"].startswith("natural")]
    limits = {c["limit"] for c in natural if c["loss"] == "logistic"}
    assert limits == {"maximum likelihood"}
    assert {c["verdict"] for c in natural} == {"reached"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--label", "kind"], "belong to a table"),
        (["plants.csv"], "--label COL"),
        (["nowhere.csv", "--label", "kind"], "nowhere.csv"),
        (["--no-intercept"], "name a table first"),
    ],
)
def test_bad_usage_gets_a_sentence(words, said, tmp_path, capsys) -> None:
    assert cli.main(["atlas", *words, "--out", str(tmp_path), *HOW]) == 2
    assert said in capsys.readouterr().err
