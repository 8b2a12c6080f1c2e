"""The whole Figure 4, at the smallest size."""

import numpy as np
import pytest

from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21._separable.curves import Table, grid
from natgrad.experiments.kmh21.fig4.claims import claims, departures
from natgrad.experiments.kmh21.fig4.claims._explanations import _known_mean, lead_left, loop_seconds
from natgrad.experiments.kmh21.fig4.config import EXPERIMENT, Fig4
from natgrad.lab import figures
from natgrad.lab.arrays import Arrays


def sweep(cells, title=""):
    return [cell.run() for cell in cells]


@pytest.fixture(scope="module")
def found():
    config = EXPERIMENT.presets["smoke"]
    return config, EXPERIMENT.compute(config, sweep)


def test_claims_are_as_expected_at_the_smallest_size(found) -> None:
    made = claims(*found)
    assert len({claim.id for claim in made}) == len(made)
    judged = [claim for claim in made if claim.holds("smoke") is not None]
    assert len(judged) >= 6
    assert [claim.id for claim in judged if not claim.as_expected("smoke")] == []


def test_every_claim_has_a_number_and_the_paper_judges_all(found) -> None:
    for claim in claims(*found):
        assert np.isfinite(claim.value), claim.id
        assert "paper" in claim.presets, claim.id


def test_what_the_paper_overstates_is_kept_and_refuted(found) -> None:
    refuted = {claim.id for claim in claims(*found) if not claim.expected}
    # The last is a statement of ours that nearly degenerate programs refute at the paper's size.
    assert refuted == {
        "paper-chance",
        "paper-depth-4",
        "gaussian-on-par",
        "paper-population",
        "paper-structure",
        "flow-basis-now",
    }


def test_the_point_at_few_samples_comes_from_the_longer_flow(found) -> None:
    config, arrays = found
    at = config.observations.index(config.few)
    now = arrays.coordinates["late_time"].index(config.until)
    late = arrays["late"][:, :, now]
    assert np.array_equal(arrays["accuracy"][: len(config.depths), at], late)
    assert not np.isnan(arrays["accuracy"]).any()


def test_the_cost_of_the_loop_is_steps_times_seconds(found) -> None:
    config, arrays = found
    curves, everything = loop_seconds(config, arrays)
    step = arrays["step_seconds"]
    assert curves == pytest.approx(2e6 * config.seeds * step.sum())
    assert everything > curves


def test_departures_explain_each_refuted_claim(found) -> None:
    text = " ".join(departures(*found))
    refuted = ("“At chance", "“L = 4 on par", "“NGD fails to learn", "“Population Fisher")
    for words in (*refuted, "2 million"):
        assert words in text


def test_it_is_drawn_from_saved_arrays(found, tmp_path) -> None:
    config, arrays = found
    arrays.save(tmp_path / "a.safetensors")
    with figures.style():
        figure = EXPERIMENT.draw(config, Arrays.load(tmp_path / "a.safetensors"))
    letters = [axes.get_title(loc="left")[:1] for axes in figure.axes]
    assert [mark for mark in letters if mark] == list("ABCDEFGHIJ")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 999}, "must contain dim, few and path"),
        ({"few": 2500}, "few must be below dim"),
        ({"path": ()}, "path above it"),
        ({"overshoot_scales": (0.3, 1.0)}, "must contain 0.03, 0.1 and 0.3"),
        ({"gaussian_scales": ()}, "gaussian_scales one number"),
        ({"seeds": 3}, "slow_seeds must be at most seeds"),
        ({"ratios": (0.5,)}, "one of ratios above 1"),
        ({"depths": (1, 2), "scales": (0.1, 0.1)}, "must contain 1 to 4"),
        ({"scales": (0.1,)}, "one number for each"),
        ({"late": 10.0}, "between 1 and late"),
    ],
)
def test_sizes_that_leave_a_claim_empty_are_refused(change, words) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Fig4(**change)


def test_the_table_finds_rows_by_name() -> None:
    arrays = Arrays(method=["EGD L=1", "NGD"], n=[5, 9])
    arrays.add("accuracy", [[[0.6, 0.7], [0.8, 0.9]], [[0.5, 0.5], [0.95, 0.85]]], "method", "n",
               "seed")  # fmt: skip
    table = Table(arrays)
    assert table("NGD", 9).tolist() == [0.95, 0.85]
    assert table.best_gap("NGD", ["EGD L=1"], 9).mean() == pytest.approx(0.05)
    assert table.best_gap("NGD", ["EGD L=1"], 0).mean() == pytest.approx(0.05)


def test_means_leave_out_nans() -> None:
    values = np.array([[[1.0, np.nan, np.nan]], [[3.0, 4.0, np.nan]]])
    assert _known_mean(values).tolist() == [2.0, 4.0]


def test_random_starts_are_tried_at_every_scale_and_number_of_samples(found) -> None:
    config, arrays = found
    scales, many = config.gaussian_scales, config.observations
    assert arrays["gaussian"].shape == (len(scales), len(many), config.slow_seeds, 3)
    assert lead_left(config, arrays).shape == arrays["gaussian"].shape[:3]
    few = [n for n in many if n <= config.dim]
    shape = (len(few), config.seeds, len(config.overshoot_scales))
    assert arrays["overshoot_descent"].shape == arrays["overshoot_flow"].shape == shape
    assert not np.isnan(arrays["gaussian"]).any()


@pytest.mark.parametrize(
    ("name", "at", "change", "id"),
    [
        ("gaussian", (-1, -1, -1, 1), 2.0, "gaussian-behind"),
        ("gaussian", (-1, 0, -1, 1), 2.0, "gaussian-few"),
        ("gaussian", (0, -1, -1, 2), 2.0, "gaussian-settled"),
        ("overshoot_descent", (0, -1, -1), 1.0, "overshoot"),
        ("overshoot_descent", (0, -1, 1), 0.0, "overshoot-0.1"),
        ("overshoot_descent", (0, -1, 0), 0.0, "overshoot-0.03"),
        ("loop_distance", (0, 0), 0.1, "loop-agrees"),
    ],
)
def test_one_bad_data_set_is_enough_to_break_a_claim(found, name, at, change, id) -> None:
    config, arrays = found
    whole = arrays[name].copy()
    try:
        arrays[name][at] = change
        (claim,) = [claim for claim in claims(config, arrays) if claim.id == id]
        assert not claim.satisfied
    finally:
        arrays[name][...] = whole


def test_the_grid_leaves_gaps_where_there_is_no_number() -> None:
    results = {("a", 1): {"v": np.array([1.0, 2.0])}, ("a", 2): {}}
    values = grid(results, "v", ["a"], [1, 2])
    assert values[0, 0] == 2.0
    assert np.isnan(values[0, 1])
