"""Figure 1: paths against closed forms, and the whole figure."""

import numpy as np
import pytest

from natgrad.experiments.kmh21.fig1.cells import (
    INPUT,
    TARGET,
    Path,
    euclidean_optimum,
    natural_optimum,
    path,
)
from natgrad.experiments.kmh21.fig1.config import EXPERIMENT
from natgrad.lab import figures


def sweep(cells, title=""):
    return [cell.run() for cell in cells]


@pytest.fixture(scope="module")
def found():
    config = EXPERIMENT.presets["smoke"]
    return config, EXPERIMENT.compute(config, sweep)


def test_every_claim_is_as_expected(found) -> None:
    config, arrays = found
    for claim in EXPERIMENT.claims(config, arrays):
        assert claim.holds("smoke") is claim.expected, claim.id


def test_the_optima_are_optima_and_differ() -> None:
    ends = [euclidean_optimum("direct"), euclidean_optimum("diagonal"), natural_optimum(0.7)]
    assert np.allclose([np.dot(INPUT, end) for end in ends], TARGET)
    assert min(np.linalg.norm(ends[i] - ends[j]) for i, j in ((0, 1), (0, 2), (1, 2))) > 0.5


def test_with_uncorrelated_inputs_both_methods_agree_in_direct_parameters() -> None:
    egd, ngd = (path(Path("direct", method, 0.0, 3.0, 7))["beta"] for method in ("EGD", "NGD"))
    assert np.allclose(egd, ngd, atol=1e-7)


def test_the_drawn_layer_gives_the_image() -> None:
    result = path(Path("diagonal", "EGD", 0.7, 3.0, 5))
    assert np.allclose(result["params"] ** 2, result["beta"], rtol=1e-9)


def test_it_is_drawn(found) -> None:
    with figures.style():
        figure = EXPERIMENT.draw(*found)
    assert len(figure.axes) == 3
