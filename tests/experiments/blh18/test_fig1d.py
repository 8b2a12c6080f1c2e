"""Figure 1D: network, images, questions about curves, and the whole figure on small digits."""

import dataclasses
import math

import numpy as np
import pytest
import torch

from natgrad.data import mnist
from natgrad.errors import InvalidInputError
from natgrad.experiments.blh18.fig1d import cells
from natgrad.experiments.blh18.fig1d._autoencoder import (
    DEFAULT,
    Entry,
    Race,
    Trial,
    WallRace,
    autoencoder,
    images,
    race,
    race_on_all_cores,
    trial,
    widths,
)
from natgrad.experiments.blh18.fig1d.claims import Curves
from natgrad.experiments.blh18.fig1d.config import EXPERIMENT
from natgrad.lab import figures
from natgrad.lab.arrays import Arrays


def sweep(cells, title=""):
    return [cell.run() for cell in cells]


@pytest.fixture(scope="module")
def found():
    config = EXPERIMENT.presets["smoke"]
    return config, EXPERIMENT.compute(config, sweep)


def test_every_claim_is_as_expected(found) -> None:
    config, arrays = found
    claims = EXPERIMENT.claims(config, arrays)
    assert any(claim.holds("smoke") is not None for claim in claims)
    for claim in claims:
        assert claim.as_expected("smoke"), claim.id


def test_all_methods_start_from_the_same_weights(found) -> None:
    _, arrays = found
    for name in ("test", "glorot_test", "wall_test"):
        assert len(set(arrays[name][0, :, 0].tolist())) == 1


def test_it_draws_and_says_that_digits_are_small(found) -> None:
    config, arrays = found
    with figures.style():
        assert figures.render(EXPERIMENT.draw(config, arrays))
    assert any("8×8" in sentence for sentence in EXPERIMENT.departures(config, arrays))


def test_the_network_is_the_papers() -> None:
    sizes = widths(EXPERIMENT.presets["paper"].hidden, 784)
    assert sizes == (784, 400, 200, 100, 50, 100, 200, 400, 784)
    model = autoencoder((6, 4, 3, 6), "uniform", 0)
    x = torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
    first, second, last = (layer for layer in model if isinstance(layer, torch.nn.Linear))
    assert torch.equal(model(x), last(torch.tanh(second(torch.tanh(first(x))))))
    assert all(not layer.bias.any() for layer in (first, second, last))


@pytest.mark.parametrize(("start", "variance"), [("uniform", 1 / 900), ("Glorot", 2 / 400)])
def test_initial_weights_have_their_variance(start, variance: float) -> None:
    weight = next(autoencoder((300, 100), start, 0).parameters())
    assert float(weight.var().detach()) == pytest.approx(variance, rel=0.05)


def test_training_and_test_images_do_not_overlap() -> None:
    train, test = images("digits")
    assert (len(train), len(test)) == (1500, 297)
    assert (float(train.min()), float(train.max())) == (0, 1)


def test_a_trial_does_not_see_its_validation_images(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Trial("digits", 600, (200,), "Adam", 50, 1e-3, 1, 0)
    before = float(trial(given)["validation"])
    train, test = images("digits")
    changed = train.clone()
    changed[100:600] = 0.0  # all but the sixth that is held out
    monkeypatch.setattr(
        "natgrad.experiments.blh18.fig1d._autoencoder.images", lambda source: (changed, test)
    )
    assert float(trial(given)["validation"]) > before


def test_without_mnist_either_means_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing():
        raise mnist.MnistUnavailableError("no network")

    monkeypatch.setattr(mnist, "load", missing)
    assert cells.available("either") == "digits"
    assert cells.available("MNIST") == "MNIST"


def test_times_until_the_mark_by_hand() -> None:
    arrays = Arrays(method=["SGD", DEFAULT])
    nan = math.nan
    arrays.add("examples", [[0, 1, 2, 3], [0, 1, 2, nan]], "method", "point")
    arrays.add("test", [[[9, 5, 2, 3], [9, 2, 1, nan]]], "seed", "method", "point")
    arrays.add("seconds", [[[0, 10, 20, 30], [0, 4, 8, nan]]], "seed", "method", "point")
    curves = Curves(arrays)
    assert curves.mark.tolist() == [3]  # SGD's last error, though it was lower before
    assert curves.seconds("SGD").tolist() == [30]
    assert curves.sooner(DEFAULT).tolist() == [7.5]
    assert curves.until(DEFAULT).tolist() == [1]
    assert curves.fewer(DEFAULT).tolist() == [3]
    assert curves.last(DEFAULT).tolist() == [1]
    assert np.isinf(never_there(arrays).seconds(DEFAULT)).all()


def test_ratios_are_those_of_the_worst_seed_and_of_their_own_race() -> None:
    config = EXPERIMENT.presets["smoke"]
    arrays = by_hand(published=(2.0, 5.0), wall=(3.0, 9.0))
    claims = {claim.id: claim for claim in EXPERIMENT.claims(config, arrays)}
    assert claims["published-core"].value == 30 / 5.0
    assert claims["published"].value == 30 / 9.0
    assert claims["examples"].value == 3
    assert claims["published"].source == "[BLH18] Figure 1D, bottom"


def by_hand(published, wall) -> Arrays:
    """Return curves of two seeds that all meet the mark at their first point."""
    arrays = Arrays(first_order=["SGD"])
    for prefix, methods, spent in (
        ("", cells.METHODS, published),
        ("glorot_", cells.GLOROT, published),
        ("wall_", cells.WALL, wall),
    ):
        arrays.coordinates[f"{prefix}method"] = list(methods)
        axes = (f"{prefix}seed", f"{prefix}method", f"{prefix}point")
        others = len(methods) - 1
        seconds = [[[0, 10, 20, 30]] + [[0, s, 20, 30]] * others for s in spent]
        arrays.add(f"{prefix}examples", [[0, 1, 2, 3]] * len(methods), *axes[1:])
        arrays.add(f"{prefix}test", [[[9, 5, 4, 3]] + [[9, 3, 2, 1]] * others] * 2, *axes)
        arrays.add(f"{prefix}seconds", seconds, *axes)
    arrays.add("rate", [0.04], "first_order")
    arrays.add("cores", 2)
    return arrays


def test_a_race_on_all_cores_is_the_same_race_with_another_clock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.get_num_threads()
    monkeypatch.setattr("natgrad.experiments.blh18.fig1d._autoencoder.cores", lambda: before)
    entries = (Entry("SGD", 20, 0.01, 1), Entry(DEFAULT, 50, 1.0, 1))
    given = Race("digits", 200, (100,), "uniform", entries, every=100, seed=0)
    found = race_on_all_cores(WallRace(given, trial=100))
    assert torch.get_num_threads() == before
    assert int(found["cores"]) == before
    assert set(found["threads"].tolist()) <= {1, before}
    assert (np.nanmax(found["seconds"], axis=1) > 0).all()
    if before == 1:
        assert np.array_equal(found["test"], race(given)["test"], equal_nan=True)


def never_there(arrays: Arrays) -> Curves:
    """Return the same curves with a second method that never meets the mark."""
    arrays.add("test", [[[9, 5, 2, 3], [9, 8, 7, math.nan]]], "seed", "method", "point")
    return Curves(arrays)


def test_grids_of_different_sizes_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="same number of rates"):
        dataclasses.replace(EXPERIMENT.presets["smoke"], adam_rates=(0.1,))
