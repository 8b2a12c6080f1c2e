"""Figure 2: limits in the plane against exhaustive search, and the whole figure."""

import math

import numpy as np
import pytest
import torch

from natgrad.data.separable import planar
from natgrad.errors import InvalidInputError
from natgrad.experiments.kmh21.fig2.cells import Flow, Limits, flow, limits, quasi_norm_optimum
from natgrad.experiments.kmh21.fig2.config import EXPERIMENT, Fig2
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


@pytest.mark.parametrize("p", [1.0, 2 / 3, 0.5])
def test_the_quasi_norm_optimum_is_the_best_direction_of_all(p: float) -> None:
    task = planar()
    rows = task.y[:, None] * task.x
    best = quasi_norm_optimum(rows, p)
    angle = torch.linspace(-math.pi / 2, math.pi / 2, 200_001, dtype=torch.float64)
    directions = torch.stack([torch.cos(angle), torch.sin(angle)])
    margins = (rows @ directions).amin(0) / directions.abs().pow(p).sum(0).pow(1 / p)
    own = float((rows @ best).min() / best.abs().pow(p).sum().pow(1 / p))
    assert own >= float(margins.max()) * (1 - 1e-9)
    assert own == pytest.approx(float(margins.max()), rel=2e-4)


def test_the_quasi_norm_optimum_of_data_that_are_not_separable() -> None:
    rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    with pytest.raises(ArithmeticError, match="not separable"):
        quasi_norm_optimum(rows, 0.5)


def test_limits_are_those_of_the_enumeration() -> None:
    task = planar()
    one = limits(Limits(40, (1, 2)))["norms"][1]
    exact = quasi_norm_optimum(task.y[:, None] * task.x, 1.0).numpy()
    assert np.allclose(one, exact, rtol=1e-8)


def test_natural_flow_does_not_depend_on_the_initial_scale() -> None:
    small, large = (flow(Flow(40, "NGD", 3, s, (-1.0, 2.0), 4))["beta"] for s in (0.1, 1.0))
    assert np.allclose(small, large, rtol=1e-5)


def test_depths_without_claims_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="must contain 1, 2 and 4"):
        Fig2(depths=(1, 2))


def test_it_is_drawn_and_explained(found) -> None:
    with figures.style():
        figure = EXPERIMENT.draw(*found)
    assert len(figure.axes) == 6
    assert any("log log" in sentence for sentence in EXPERIMENT.departures(*found))
