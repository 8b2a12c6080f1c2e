"""The whole Figure 6, at the smallest size."""

import numpy as np
import pytest

from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21.fig6.config import EXPERIMENT, Fig6
from natgrad.lab import figures


def sweep(cells, title=""):
    return [cell.run() for cell in cells]


@pytest.fixture(scope="module")
def found():
    config = EXPERIMENT.presets["smoke"]
    return config, EXPERIMENT.compute(config, sweep)


def test_claims_are_as_expected_at_the_smallest_size(found) -> None:
    made = EXPERIMENT.claims(*found)
    assert len({claim.id for claim in made}) == len(made)
    judged = [claim for claim in made if claim.holds("smoke") is not None]
    assert len(judged) >= 4
    assert [claim.id for claim in judged if not claim.as_expected("smoke")] == []
    assert all(np.isfinite(claim.value) and "paper" in claim.presets for claim in made)


def test_it_is_drawn_and_explained(found) -> None:
    with figures.style():
        figure = EXPERIMENT.draw(*found)
    assert len(figure.axes) == 6
    letters = [axes.get_title(loc="left")[:1] for axes in figure.axes]
    assert [mark for mark in letters if mark] == list("ABCD")
    assert "5-layer" in " ".join(EXPERIMENT.departures(*found))


def test_one_bad_data_set_is_enough_to_break_a_claim(found) -> None:
    config, arrays = found
    whole = arrays["gaussian"].copy()
    try:
        arrays["gaussian"][-1, config.observations.index(config.many), -1] = 1.0
        (claim,) = [c for c in EXPERIMENT.claims(config, arrays) if c.id == "gaussian-depth-5"]
        assert not claim.satisfied
    finally:
        arrays["gaussian"][...] = whole


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dim": 55}, "must contain dim, few, many"),
        ({"few": 60}, "must lie between"),
        ({"sampled": (25,)}, "and sampled"),
        ({"gaussian_seeds": 21}, "at most seeds"),
        ({"gaussian_scales": ()}, "hold a number"),
        ({"depths": (1, 2), "scales": (0.1, 0.1)}, "must contain 1 to 5"),
        ({"seeds": 3}, "at most seeds"),
    ],
)
def test_sizes_that_leave_a_claim_empty_are_refused(change, words) -> None:
    with pytest.raises(InvalidInputError, match=words):
        Fig6(**change)
