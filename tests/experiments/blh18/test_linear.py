"""Figures 1A to 1C: questions about curves made by hand, rates of decay, the whole figures."""

import dataclasses
import math

import numpy as np
import pytest

from natgrad.errors import InvalidInputError
from natgrad.experiments.blh18._linear.cells import METHODS
from natgrad.experiments.blh18._linear.claims import Curves, arrives, slopes
from natgrad.experiments.blh18._linear.config import DeepLinear
from natgrad.experiments.blh18._linear.race import BEST, PUBLISHED, Decay, decay
from natgrad.experiments.blh18.fig1a import config as fig1a
from natgrad.experiments.blh18.fig1b import config as fig1b
from natgrad.experiments.blh18.fig1c import config as fig1c
from natgrad.lab import figures
from natgrad.lab.arrays import Arrays


def sweep(cells, title=""):
    return [cell.run() for cell in cells]


@pytest.fixture(scope="module", params=[fig1a, fig1b, fig1c], ids=["a", "b", "c"])
def found(request):
    experiment = request.param.EXPERIMENT
    config = experiment.presets["smoke"]
    return experiment, config, experiment.compute(config, sweep)


def test_every_claim_is_as_expected(found) -> None:
    experiment, config, arrays = found
    claims = experiment.claims(config, arrays)
    assert any(claim.holds("smoke") is not None for claim in claims)
    for claim in claims:
        assert claim.as_expected("smoke"), claim.id


def test_all_methods_start_from_the_same_error_and_ours_ends_at_the_floor(found) -> None:
    _, config, arrays = found
    assert len(set(arrays["test"][0, :, 0].tolist())) == 1
    best = arrays["test"][0, METHODS.index(BEST), -1]
    # 500 tests and 8 outputs or more: the floor is known to 2 standard errors of 2.3 %
    assert best == pytest.approx(config.noise, rel=0.06)


def test_it_draws_and_explains(found) -> None:
    experiment, config, arrays = found
    with figures.style():
        files = figures.render(experiment.draw(config, arrays))
    assert set(files) == {"figure.png", "figure.pdf", "figure.svg"}
    words = " ".join(experiment.departures(config, arrays)).split()
    assert not {"nan", "inf"} & set(words)


def made(errors, seconds):
    """Return curves of two methods, one of first order, and two seeds."""
    arrays = Arrays(seed=[0, 1], method=["SGD", BEST], first_order=["SGD"])
    arrays.add("examples", [0, 500, 1000], "point")
    arrays.add("test", np.array(errors) * 1e-6, "seed", "method", "point")
    arrays.add("seconds", seconds, "seed", "method", "point")
    config = DeepLinear(widths=(2, 2), power=1.0, examples=1000)
    return Curves(config, arrays)


def test_arrivals_by_hand() -> None:
    curves = made(
        [[[9, 3, 2], [9, 1.05, 1]], [[9, 3, 1.1], [9, 2, math.inf]]],
        [[[0, 2, 4], [0, 1, 2]], [[0, 2, 4], [0, 1, 2]]],
    )
    assert curves.passes_until("SGD").tolist() == [math.inf, 1.0]
    assert curves.seconds_until(BEST).tolist() == [1.0, math.inf]
    assert curves.rivals_seconds("SGD").tolist() == [4.0, 4.0]  # never there: all its seconds
    assert curves.rivals_seconds(BEST).tolist() == [1.0, math.inf]  # diverged: will not arrive
    assert curves.lead(BEST).tolist() == [4.0, 0.0]
    assert curves.after("SGD", 0.5).tolist() == pytest.approx([3.0, 3.0])
    assert curves.after("SGD", 99).tolist() == pytest.approx([2.0, 1.1])


def test_arrivals_in_words() -> None:
    curves = made(
        [[[9, 3, 2], [9, 1.05, 1]], [[9, 3, 4], [9, 1.0, 1]]],
        [[[0, 2, 4], [0, 1, 2]], [[0, 2, 4], [0, 1, 2]]],
    )
    assert arrives(curves, BEST) == "arrives after 0.5 passes and 1 s (median)"
    assert arrives(curves, "SGD") == "is at 3 × the floor after all 1 passes (median)"
    lost = made([[[9, math.inf, math.inf], [9, 1, 1]]] * 2, np.ones((2, 2, 3)))
    assert arrives(lost, "SGD") == "diverges (median)"


@pytest.mark.parametrize("figure", [fig1a, fig1c])
def test_every_seed_counts(figure) -> None:
    """SGD by its best seed, natural gradients by their worst, also if that never arrives."""
    errors = np.full((2, len(METHODS), 3), 1e-6)
    errors[:, METHODS.index("SGD")] = 1e-6 * np.array([[9, 5, 3], [9, 5, 1.05]])
    errors[1, METHODS.index(PUBLISHED)] = 9e-6
    arrays = Arrays(method=METHODS, first_order=["SGD"])
    arrays.add("examples", [0, 2000, 500_000], "point")
    arrays.add("test", errors, "seed", "method", "point")
    arrays.add("seconds", np.ones_like(errors), "seed", "method", "point")
    arrays.add("excess", np.exp(-np.ones((2, 1)) * np.arange(9)), "seed", "step")
    arrays.add("rate", [0.1], "first_order")
    experiment = figure.EXPERIMENT
    found = {c.id: c for c in experiment.claims(experiment.presets["paper"], arrays)}
    assert found["sgd"].value == pytest.approx(1.05)
    assert found["sgd"].expected == (figure is fig1a)
    assert (found["published"].value, found["published"].sd) == (math.inf, None)
    assert found["best"].value == 0


def test_rates_are_tried_on_every_problem_that_is_raced(found) -> None:
    _, config, arrays = found
    assert arrays["tuning_validation"].shape[1] == config.seeds


def test_slopes_of_exponentials() -> None:
    steps = np.arange(30)
    excess = np.stack([np.exp(-0.2 * steps), 5 * np.exp(-0.03 * steps)])
    assert slopes(excess) == pytest.approx([0.2, 0.03])


def test_one_layer_decays_at_the_rate_of_newtons_method() -> None:
    excess = decay(Decay((5, 5), 2.0, 200, "random", 0.25, 20, 0))["excess"]
    assert excess[1:] / excess[:-1] == pytest.approx(np.full(19, 0.75**2), rel=1e-9)


def test_grids_of_different_sizes_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="same number of rates"):
        dataclasses.replace(fig1a.EXPERIMENT.presets["smoke"], sgd_rates=(0.1,))
