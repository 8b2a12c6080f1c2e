import numpy as np
import pytest
import torch

from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21.fig3.cells import ResponseConfig, responses
from natgrad.experiments.kmh21.fig3.claims import off_cross, off_entry
from natgrad.experiments.kmh21.fig3.config import EXPERIMENT, Fig3


def sweep(cells, title=""):
    return [cell.run() for cell in cells]


@pytest.fixture(scope="module")
def arrays():
    return EXPERIMENT.compute(EXPERIMENT.presets["smoke"], sweep)


def test_claims_hold_at_the_smallest_size(arrays):
    config = EXPERIMENT.presets["smoke"]
    claims = EXPERIMENT.claims(config, arrays)
    assert len({claim.id for claim in claims}) == len(claims)
    judged = [claim for claim in claims if claim.holds("smoke") is not None]
    assert len(judged) >= 8
    assert all(claim.as_expected("smoke") for claim in judged), [
        (claim.id, claim.value) for claim in judged if not claim.satisfied
    ]


def test_one_bad_start_breaks_the_formula(arrays):
    config, whole = EXPERIMENT.presets["smoke"], arrays["formula_residual"].copy()
    try:
        arrays["formula_residual"][-1, -1] = 1e-6
        (claim,) = [c for c in EXPERIMENT.claims(config, arrays) if c.id == "formula"]
        assert not claim.satisfied
    finally:
        arrays["formula_residual"][...] = whole


def test_picture_and_departures(arrays):
    config = EXPERIMENT.presets["smoke"]
    figure = EXPERIMENT.draw(config, arrays)
    maps = [axes for axes in figure.axes if axes.images]
    assert len(maps) == 4 * len(config.depths)
    assert {tuple(axes.images[0].get_clim()) for axes in maps} == {(-1.0, 1.0)}
    assert all(sentence.endswith((".", ":")) for sentence in EXPERIMENT.departures(config, arrays))


def response(depth, **steps):
    given = {"euclidean_step": 0.5, "natural_step": 0.5} | steps
    return responses(ResponseConfig(size=7, depth=depth, seed=3, **given))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_small_euclidean_step_moves_by_the_kernel(depth):
    found = response(depth, euclidean_step=1e-6)
    np.testing.assert_allclose(found["egd"], found["egf"], atol=1e-5)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_the_natural_kernel_is_one_at_the_entry_and_zero_elsewhere(depth):
    found = response(depth)
    expected = np.zeros((7, 7))
    expected[3, 3] = 1
    np.testing.assert_allclose(found["ngf"], expected, atol=1e-10)


def test_measures_of_spread():
    cross = np.zeros((5, 5))
    cross[2, 2], cross[2, 0], cross[4, 2] = 2.0, 0.5, -1.0
    assert off_entry(cross[None])[0] == 0.5
    assert off_cross(cross[None])[0] == 0
    cross[0, 0] = 0.2
    assert off_cross(cross[None])[0] == pytest.approx(0.1)


def test_same_config_same_bits():
    torch.manual_seed(99)
    first, again = response(3), response(3)
    assert all(np.array_equal(first[key], again[key]) for key in first)


@pytest.mark.parametrize("options", [{"size": 10}, {"depths": (1, 2)}, {"size": 1}])
def test_configs_without_a_middle_or_a_claim_are_refused(options):
    with pytest.raises(InvalidInputError, match="odd"):
        Fig3(**options)
