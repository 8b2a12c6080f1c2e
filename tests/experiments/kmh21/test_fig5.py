from dataclasses import replace

import numpy as np
import pytest
import torch

from natgrad import MatrixProduct
from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21._completion import cells
from natgrad.experiments.kmh21.fig5 import _further as further
from natgrad.experiments.kmh21.fig5.claims._statistics import (
    loop_over_flow,
    rank_tests,
    start_effect,
)
from natgrad.experiments.kmh21.fig5.config import EXPERIMENT, Fig5
from natgrad.lab.arrays import Arrays
from natgrad.lab.cell import canonical

SMOKE = EXPERIMENT.presets["smoke"]
TASK = cells.Task(size=20, rank=2, observed=200, seed=0)


def sweep(given, title=""):
    return [cell.run() for cell in given]


@pytest.fixture(scope="module")
def arrays():
    return EXPERIMENT.compute(SMOKE, sweep)


def test_claims_hold_at_the_smallest_size(arrays):
    claims = EXPERIMENT.claims(SMOKE, arrays)
    assert len({claim.id for claim in claims}) == len(claims)
    judged = [claim for claim in claims if claim.holds("smoke") is not None]
    assert len(judged) >= 6
    assert all(claim.as_expected("smoke") for claim in judged), [
        (claim.id, claim.value) for claim in judged if not claim.satisfied
    ]
    assert all(claim.holds("paper") is not None for claim in claims)


def test_picture_is_drawn_from_saved_arrays(arrays, tmp_path):
    arrays.save(tmp_path / "arrays.safetensors")
    figure = EXPERIMENT.draw(SMOKE, Arrays.load(tmp_path / "arrays.safetensors"))
    figure.canvas.draw()
    assert len(figure.axes) == 3 + len(SMOKE.depths) + 3 + 1 + len(SMOKE.depths)


def test_departures_are_sentences(arrays):
    found = EXPERIMENT.departures(SMOKE, arrays)
    assert len(found) >= 6
    assert all(sentence.strip().endswith(".") for sentence in found)


class Keep:
    """A sweep that keeps its cells and runs none."""

    def __call__(self, cells, title=""):
        self.cells = cells
        raise StopIteration


def test_cells_of_all_presets_have_one_text_each():
    for preset in EXPERIMENT.presets.values():
        keep = Keep()
        with pytest.raises(StopIteration):
            EXPERIMENT.compute(preset, keep)
        texts = [cell.name + canonical(cell.config) for cell in keep.cells]
        # EGD cells may serve two panels; all others are distinct.
        assert len(texts) - len(set(texts)) <= len(preset.race)


def test_depth_beats_depth_one_and_runs_repeat_bit_for_bit():
    config = cells.EuclideanConfig(task=TASK, depth=3, scale=1e-3)
    torch.manual_seed(5)
    first, again = cells.euclidean(config), cells.euclidean(config)
    assert all(np.array_equal(first[key], again[key]) for key in first)
    one = cells.direct(replace(config, depth=1))
    assert bool(first["converged"])
    assert first["test"] < 0.1 * one["test"]
    assert one["train"] == 0


def test_collapsed_starts_are_matched_in_norm():
    sizes = []
    for source in (2, 4, 6):
        config = cells.EuclideanConfig(task=TASK, depth=2, scale=1e-3, from_depth=source)
        w = cells.start(config, torch.float64)
        assert len(w) == 2
        sizes.append(float(torch.linalg.matrix_norm(MatrixProduct(2).hypothesis(w))))
    assert sizes == pytest.approx([1e-3 * 20**0.5] * 3, rel=1e-12)


def test_natural_descent_leaves_unobserved_entries_alone():
    found = cells.natural_all(cells.NaturalConfig(task=TASK, depth=3, scale=1e-3))
    assert bool(found["converged"])
    assert found["off"] < 1e-6
    assert found["test"] == pytest.approx(float(found["trivial"]), rel=1e-6)


def test_equal_share_is_singular_from_small_gaussian_factors():
    config = cells.NaturalConfig(task=TASK, depth=2, scale=1e-3, selection="equal_share")
    found = cells.natural_all(config)
    assert bool(found["singular"])
    assert found["time"] < 1


def test_damping_leads_from_trivial_to_euclidean():
    def ratio(damping):
        found = further.damped(
            further.GridConfig(
                task=TASK, depth=2, scale=1.0, step=0.3, damping=damping, train_error=1e-3
            )
        )
        assert bool(found["converged"])
        return float(found["test"] / found["trivial"])

    egd = cells.EuclideanConfig(task=TASK, depth=2, scale=1.0, train_error=1e-3)
    limit = float(cells.euclidean(egd)["test"])
    small, large = ratio(0.01), ratio(100.0)
    assert small > 0.9
    assert large < 0.9 * small
    direct = float(cells.direct(replace(egd, depth=1))["test"])
    assert large == pytest.approx(limit / direct, rel=0.1)


def test_steps_that_overflow_are_infinite_not_nan():
    config = further.GridConfig(
        task=TASK, depth=3, scale=1e-6, step=1.0, damping=0.0, train_error=1e-4
    )
    found = further.damped(config)
    assert bool(found["broke"])
    assert np.isposinf(found["test"])


def test_singular_values_start_small_and_end_near_the_truth():
    found = further.dynamics(further.DynamicsConfig(task=TASK, depth=3, scale=1e-3, points=50))
    assert found["values"].shape == (50, 10)
    assert np.all(np.diff(found["times"]) > 0)
    assert np.all(found["values"][0] < 0.1)
    np.testing.assert_allclose(found["values"][-1, :2], found["truth"][:2], rtol=0.05)
    assert found["drift"] < 1e-4


def test_effective_rank_of_random_products_falls():
    ranks = further.products(further.ProductsConfig(size=30, depths=(1, 4, 16), seed=0))["rank"]
    assert ranks[0] > ranks[1] > ranks[2] > 1


def test_the_race_compares_equal_results():
    cell = cells.EuclideanConfig(task=TASK, depth=2, scale=1e-3)
    found = further.race(further.RaceConfig(cell=cell))
    assert bool(found["agree"])
    assert found["steps"] == pytest.approx(float(found["expected_steps"]), rel=0.6)
    assert found["flow_seconds"] > 0
    assert found["loop_seconds"] > 0


def test_speed_is_loop_over_flow():
    config = replace(SMOKE, depths=(2, 3), race=((2, 1e-3, 200), (3, 1e-3, 200)))
    arrays = Arrays()
    for name, value in {
        "race_steps": [100.0, 200.0],
        "race_expected_steps": [100.0, 200.0],
        "race_loop_seconds": [1.0, 4.0],  # 10 and 20 ms per step
        "race_flow_seconds": [0.1, 0.3],
        "race_evaluations": [50.0, 100.0],  # 2 and 3 ms a gradient
        "egd_time": [3.6, 9.0],
        "egd_radius": [500.0, 1000.0],  # 1000 and 5000 steps
        "egd_evaluations": [500.0, 1000.0],
    }.items():
        arrays.add(name, np.array(value), "k")
    assert loop_over_flow(config, arrays) == pytest.approx((10 + 100) / (1 + 3))


def test_rank_tests_see_an_effect_and_its_absence():
    generator = np.random.default_rng(0)
    config = replace(SMOKE, collapsed=((2, 2), (2, 4), (2, 6), (3, 3), (3, 6)))

    def p_values(shift):
        problems = np.exp(generator.standard_normal((1, 3, 12)))
        noise = np.exp(0.05 * generator.standard_normal((5, 3, 12)))
        arrays = Arrays()
        factor = np.exp(shift * np.array([0, 1, 2, 0, 1]))[:, None, None]
        arrays.add("init_test", problems * noise * factor, "start", "n", "seed")
        return rank_tests(config, arrays)

    none, some = p_values(0.0), p_values(0.5)
    assert min(none["L2"], none["L3"]) > 0.01
    assert max(some["L2"], some["L3"]) < 1e-3  # within problems, though problems differ by more
    assert none["unpaired"] == pytest.approx(1.0, abs=0.9)


def test_effect_of_starts_is_the_factor_between_shallowest_and_deepest():
    arrays = Arrays()
    losses = np.exp(np.random.default_rng(1).standard_normal((1, 3, 7)))
    factors = np.array([1.0, 5.0, 1.5, 1.0, 0.25])[:, None, None]
    arrays.add("init_test", losses * factors, "start", "n", "seed")
    config = replace(SMOKE, collapsed=((2, 2), (2, 4), (2, 6), (3, 3), (3, 6)))
    assert start_effect(config, arrays) == pytest.approx({2: 1.5, 3: 0.25})


@pytest.mark.parametrize(
    "options", [{"depths": (2, 4)}, {"natural_depths": (2,)}, {"collapsed": ((2, 2), (3, 3))}]
)
def test_configs_that_leave_claims_without_numbers_are_refused(options):
    with pytest.raises(InvalidInputError, match="must contain"):
        Fig5(**options)
