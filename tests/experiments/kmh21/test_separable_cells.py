"""Cells of Figures 4 and 6 against the library's general methods and against sampling."""

import numpy as np
import pytest
import torch

from natgrad.data.separable import sparse_gaussian
from natgrad.diagnostics import cosine
from natgrad.directions import GaussianInputs, natural
from natgrad.experiments.kmh21._separable import cells
from natgrad.experiments.kmh21.fig4 import _variants as variants
from natgrad.flows import descend, integrate
from natgrad.flows._methods.dual.layers import Layers
from natgrad.likelihoods import Bernoulli
from natgrad.limits import max_margin
from natgrad.parametrizations import Diagonal, Direct
from natgrad.stopping import steps_reached

WIDE = cells.Task(n=12, dim=20, ones=3, seed=1)
TALL = cells.Task(n=40, dim=12, ones=2, seed=3)


def test_accuracy_is_that_of_a_large_sample() -> None:
    task = sparse_gaussian(5, 6, ones=2, seed=0)
    generator = torch.Generator().manual_seed(5)
    beta = torch.randn(6, dtype=torch.float64, generator=generator)
    x = torch.randn(200_000, 6, dtype=torch.float64, generator=generator)
    sampled = (torch.sign(x @ beta) == torch.sign(x @ task.beta)).double().mean()
    found = cells.scores(task, beta)
    assert float(found["accuracy"]) == pytest.approx(float(sampled), abs=0.005)
    assert float(found["share"]) == pytest.approx(float(beta[:2].norm() / beta.norm()))


def test_true_features_among_the_largest_are_counted() -> None:
    task = sparse_gaussian(5, 6, ones=2, seed=0)
    rows = [[3.0, -2.0, 1, 0, 0, 0], [3.0, 1, 0, -2, 0, 0], [0, 0, 1, -2, 0, 0]]
    assert cells.scores(task, torch.tensor(rows).double())["named"].tolist() == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_gradient_flow_is_the_loop_in_small_steps(depth: int) -> None:
    loops = [variants.loop(variants.Loop(TALL, depth, 0.3, h, round(20 / h))) for h in (0.4, 0.1)]
    rough, fine = (float(loop["distance_half"]) for loop in loops)
    assert fine < 0.35 * rough  # the loop's error is of first order in its step
    assert all(float(loop["distance"]) < 5e-3 for loop in loops)
    assert float(loops[0]["distance"]) < 0.5 * rough


def test_flows_are_recorded_at_the_given_times() -> None:
    whole = cells.euclidean_flow(cells.Euclidean(WIDE, 2, 0.1, (1.0, 10.0, 100.0)))
    short = cells.euclidean_flow(cells.Euclidean(WIDE, 2, 0.1, (1.0, 10.0)))
    assert whole["accuracy"].shape == (3,)
    assert whole["accuracy"][1] == pytest.approx(float(short["accuracy"][1]), abs=1e-4)
    assert (np.diff(whole["loss"]) < 0).all()


def test_flows_stop_at_a_loss() -> None:
    found = cells.euclidean_flow(cells.Euclidean(WIDE, 2, 0.1, (1e9,), loss=1e-2))
    assert 0.5e-2 < float(found["loss"][-1]) <= 1e-2
    assert found["accuracy"].shape == (1,)


def test_coordinates_that_stay_at_a_saddle_are_counted() -> None:
    start = Diagonal(3).init_free(20, scale=0.1)
    task = WIDE.data()
    beta = torch.ones(20, dtype=torch.float64)
    beta[1] = 1e-3
    start[1:, 1] = 0.01  # the slowest of all
    found = cells._stuck(task, start, beta)
    assert found == {"stuck": pytest.approx(1 / 3), "stuck_speed": 0.0}
    assert cells._stuck(task, start, torch.ones_like(beta))["stuck"] == 0


def test_natural_flow_below_d_is_least_squares() -> None:
    found = cells.natural_sample(cells.Natural(WIDE, 1e4))
    assert float(found["ols_cosine"]) > 1 - 1e-12
    assert float(found["accuracy"]) == pytest.approx(float(found["ols_accuracy"]), abs=1e-9)


def test_natural_flow_above_d_is_the_vertex_and_solves_its_equation() -> None:
    vertex = cells.natural_sample(cells.Natural(TALL, 1e4))
    path = cells.natural_sample(cells.Natural(TALL, 1e4, path=True))
    assert float(vertex["followed"]) == 0
    assert float(path["followed"]) == 1
    assert float(vertex["residual"]) < 1e-8
    assert np.allclose(vertex["beta"], path["beta"], rtol=1e-8)
    assert float(path["path_cosine"]) > 0.99999
    assert float(path["path_basis"]) == float(path["later_basis"]) == 1


def test_the_residual_is_zero_for_the_flow_alone() -> None:
    task = TALL.data()
    signed = task.y[:, None] * task.x
    zero = torch.zeros_like(task.beta)
    flow = integrate(natural, Bernoulli(), Direct(), zero, task.batch, until=3.0, rtol=1e-9)
    assert cells.residual(signed, flow.final, 3.0) < 1e-6
    assert cells.residual(signed, 1.01 * flow.final, 3.0) > 1e-3
    assert cells.residual(signed, flow.final, 3.1) > 1e-3


def test_where_the_vertex_is_not_yet_the_flow_the_flow_is_followed() -> None:
    found = cells.natural_sample(cells.Natural(TALL, 2.0))  # long before the limit
    assert float(found["followed"]) == 1
    assert float(found["residual"]) < 1e-8


def test_the_population_direction_is_that_of_the_library() -> None:
    task = TALL.data()
    beta = torch.linspace(-1, 2, 12, dtype=torch.float64)
    given = (Bernoulli(), Direct(), beta, task.batch)
    full = natural(*given, fisher_over=GaussianInputs())
    assert torch.allclose(cells.population_direction(*given), full, rtol=1e-10)


def test_a_large_sample_is_nearly_the_population() -> None:
    closed, small, large = (
        cells.natural_population(cells.Population(TALL, 2.0, sample))["beta"]
        for sample in (0, 200, 20_000)
    )
    far, near = (1 - float(cosine(*map(torch.from_numpy, (closed, b)))) for b in (small, large))
    assert near < 1e-3
    assert near < far / 5


def test_margins_count_support_vectors() -> None:
    found = cells.margins(cells.Margins(WIDE))
    limit = max_margin(*WIDE.data().batch, p=2)
    assert int(found["l2_supports"]) == int((limit.dual > 0).sum())
    assert int(found["natural_supports"]) == WIDE.n  # N < D: every sample


def test_logits_over_time_tend_to_labels() -> None:
    found = cells.logits(cells.Logits(WIDE, 2.0, (1.0, 1e4)))
    assert np.abs(found["slopes"][-1] - found["labels"]).max() < 0.01
    assert np.ptp(np.abs(found["slopes"][0])) > 0.5  # they start at random


def test_overshooting_steps_are_those_of_natural_descent() -> None:
    scales = (0.5, 2.0)
    found = variants.overshoot(variants.Overshoot(WIDE, scales=scales, step=0.3, steps=7))
    task = WIDE.data()
    generator = torch.Generator().manual_seed(40_000 + WIDE.seed)
    normal = torch.randn(20, dtype=torch.float64, generator=generator)
    for index, scale in enumerate(scales):
        given = (natural, Bernoulli(), Direct(), scale * normal, task.batch)
        steps = descend(*given, step=0.3, until=steps_reached(7)).final
        flow = integrate(*given, until=2.1, rtol=1e-9).final
        for name, truth in (("descent", steps), ("flow", flow)):
            accuracy = float(cells.scores(task, truth)["accuracy"])
            assert float(found[name][index]) == pytest.approx(accuracy, abs=1e-7)


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_natural_flow_of_deep_networks_is_that_of_the_general_integrator(depth: int) -> None:
    times = (0.5, 3.0)
    found = variants.natural_depth(variants.Depth(WIDE, depth, 0.4, times))
    task, network = WIDE.data(), Diagonal(depth)
    flow = integrate(
        natural,
        Bernoulli(),
        network,
        network.init_free(20, scale=0.4),
        task.batch,
        until=3.0,
        times=torch.tensor(times, dtype=torch.float64),
        rtol=1e-8,
    )
    truth = cells.scores(task, flow.states.prod(1))["accuracy"]
    assert np.allclose(found["accuracy"], truth, atol=1e-5)
    assert found["error"].max() < 1e-8


def test_depth_three_tends_to_the_shortest_interpolant_in_the_one_norm() -> None:
    found = variants.natural_depth(variants.Depth(WIDE, 3, 0.3, (1.0, 1e3, 1e7)))
    shallow = variants.natural_depth(variants.Depth(WIDE, 1, 0.3, (1.0, 1e3, 1e7)))
    assert float(found["pursuit"]) > 0.9999
    assert float(shallow["pursuit"]) < 0.99


def test_logits_out_of_reach_are_refused() -> None:
    x = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    layers, v = Layers.of(Diagonal(2).init_free(2, scale=0.1))
    with pytest.raises(ArithmeticError, match="lost"):
        variants.reach(x, layers, v, torch.tensor([1.0, -1.0], dtype=torch.float64))


@pytest.mark.parametrize(
    ("function", "config"),
    [
        (cells.euclidean_flow, cells.Euclidean(WIDE, 3, 0.2, (10.0,), "gaussian")),
        (cells.natural_sample, cells.Natural(TALL, 1e3, path=True)),
        (cells.natural_population, cells.Population(WIDE, 1e2)),
        (variants.natural_depth, variants.Depth(WIDE, 2, 0.2, (1.0,))),
    ],
)
def test_cells_repeat_bit_for_bit_except_for_seconds(function, config) -> None:
    one, two = function(config), function(config)
    assert one.keys() == two.keys()
    for name in one:
        if not name.endswith("seconds"):
            assert np.array_equal(one[name], two[name], equal_nan=True), name
