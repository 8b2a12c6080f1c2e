"""Problems of Figures 1A to 1C: sizes, noise floor, start, and contributing layers."""

import pytest
import torch

from natgrad.experiments.blh18._linear.problems import (
    Problem,
    linear_network,
    make,
    powered_factors,
    shares,
    whole,
)
from natgrad.experiments.blh18.fig1a import config as fig1a
from natgrad.experiments.blh18.fig1b import config as fig1b
from natgrad.experiments.blh18.fig1c import config as fig1c


def problem(**changes):
    given = {"widths": (6, 4, 5), "power": 2.0, "examples": 300, "tests": 40_000}
    return Problem(**given | {"noise": 1e-2, "seed": 3} | changes)


def test_the_floor_is_the_error_of_the_teacher() -> None:
    given = problem()
    generator = torch.Generator().manual_seed(given.seed)
    teacher = powered_factors(given.widths, given.power, generator)
    x, y = make(given).test
    error = float((y - x @ whole(teacher).mT.float()).square().mean())
    assert error == pytest.approx(given.noise, rel=5 * (2 / y.numel()) ** 0.5)


def test_data_are_of_the_sizes_asked_for_and_do_not_overlap() -> None:
    task = make(problem(tests=50))
    assert [len(part[0]) for part in (task.train, task.validation, task.test)] == [300, 1000, 50]
    rows = torch.cat([part[0] for part in (task.train, task.validation, task.test)])
    assert len(rows.unique(dim=0)) == 1350


def test_inputs_have_the_printed_spectrum() -> None:
    x = make(problem(tests=100_000)).test[0].double()
    found = torch.linalg.eigvalsh(x.mT @ x / len(x)).flip(0)
    wanted = torch.exp(-5 * torch.arange(1, 7, dtype=torch.float64) / 6)
    assert torch.allclose(found, wanted, rtol=0.03)


def test_the_start_has_the_power_and_is_not_the_teacher() -> None:
    given = problem()
    start = make(given).start
    teacher = powered_factors(given.widths, given.power, torch.Generator().manual_seed(given.seed))
    assert float(whole(start).square().sum()) == pytest.approx(2.0, rel=1e-5)
    assert float((whole(start) - whole(teacher)).norm()) > 0.5


def test_the_network_is_the_product_of_its_factors() -> None:
    factors = powered_factors((3, 5, 2), 1.0, torch.Generator().manual_seed(0))
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(linear_network(factors)(x), x @ whole(factors).mT)


@pytest.mark.parametrize(
    ("figure", "depth", "contributing"), [(fig1a, 16, 16), (fig1b, 16, 16), (fig1c, 12, 1)]
)
def test_how_many_layers_contribute_in_the_papers_networks(
    figure, depth: int, contributing: int
) -> None:
    widths = figure.EXPERIMENT.presets["paper"].widths
    assert (len(widths) - 1, shares(widths)) == (depth, contributing)
