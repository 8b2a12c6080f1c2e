"""Gradient flow of diagonal networks in dual variables."""

import pytest
import torch

import natgrad as ng
from natgrad.data.separable import sparse_gaussian
from natgrad.flows._methods.dual.flow import DualFlow
from natgrad.flows._methods.dual.layers import Layers
from natgrad.stopping import Status
from tests.cases import randn


def start(depth: int, kind: str, d: int = 6) -> torch.Tensor:
    network = ng.Diagonal(depth)
    if kind == "gaussian":
        return network.init_gaussian(d, scale=0.5, generator=torch.Generator().manual_seed(depth))
    return getattr(network, f"init_{kind}")(d, scale=0.3)


@pytest.mark.parametrize("kind", ["free", "tied", "gaussian"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_layers_follow_their_own_equation(depth, kind) -> None:
    """dw_l/dz = ∏_{k≠l} w_k by two thousand classical Runge–Kutta steps."""
    w = start(depth, kind)
    network, z = ng.Diagonal(depth), 0.2 * randn(1)(6)
    layers, v = Layers.of(w)
    assert torch.allclose(layers.layers(v), w)
    assert torch.allclose(layers.beta(v), network.hypothesis(w))
    assert torch.allclose(layers.speed(v), network.partial_products(w).square().sum(0))
    slow, h = w.clone(), 1 / 2000
    for _ in range(2000):
        k1 = network.partial_products(slow) * z
        k2 = network.partial_products(slow + h / 2 * k1) * z
        k3 = network.partial_products(slow + h / 2 * k2) * z
        k4 = network.partial_products(slow + h * k3) * z
        slow = slow + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    closed = kind != "gaussian" or depth <= 2
    tolerance = 1e-12 if closed else 1e-6
    assert float((layers.layers(layers.advance(v, z)) - slow).abs().max()) < tolerance


def separable(n: int, d: int, seed: int = 0):
    draw = randn(seed)
    x, truth = draw(n, d), torch.zeros(d, dtype=torch.float64)
    truth[:2] = 1
    return x, torch.sign(x @ truth)


@pytest.mark.parametrize("n", [6, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["free", "tied", "gaussian"])
@pytest.mark.parametrize("depth", [1, 2, 3, 4, 5])
def test_agrees_with_a_stiff_solver_of_the_layers(depth, kind, n) -> None:
    x, y = separable(n, 10)
    network, w = ng.Diagonal(depth), start(depth, kind, 10)
    args = (ng.euclidean, ng.Bernoulli(), network, w, (x, y))
    times = torch.tensor([0.5, 30.0, 2e3])
    stiff = ng.integrate(*args, until=2e3, times=times, method="lsoda", rtol=1e-8, atol=1e-10)
    for method in ("dual", "reduced"):
        path = ng.integrate(*args, until=2e3, times=times, rtol=1e-5, method=method)
        assert path.method.startswith(method)
        for i in range(3):
            a, b = path.at(i), stiff.at(i)
            assert float((a - b).norm() / b.norm()) < 2e-4


def test_agrees_with_a_long_plain_descent() -> None:
    x, y = separable(12, 5)
    network, w = ng.Diagonal(3), start(3, "free", 5)
    args = (ng.euclidean, ng.Bernoulli(), network, w, (x, y))
    slow = ng.descend(*args, step=0.0625, until=500.0, save_every=8_000)
    flow = ng.integrate(*args, until=500.0, rtol=1e-5)
    assert slow.steps == 8_000
    assert float((flow.final - slow.final).norm() / slow.final.norm()) < 2e-3


def test_differences_of_squared_layers_are_conserved() -> None:
    x, y = separable(8, 12)
    w = start(4, "gaussian", 12)
    path = ng.integrate(ng.euclidean, ng.Bernoulli(), ng.Diagonal(4), w, (x, y), until=1e8)
    before, after = w.square() - w[:1].square(), path.final.square() - path.final[:1].square()
    assert float((before - after).abs().max()) < 1e-12


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_million_units_of_time_cost_hundreds_of_evaluations(depth) -> None:
    x, y = separable(40, 80)
    args = (ng.euclidean, ng.Bernoulli(), ng.Diagonal(depth), start(depth, "free", 80), (x, y))
    million, trillion = (ng.integrate(*args, until=t) for t in (1e6, 1e12))
    assert million.evaluations < 1500
    assert trillion.evaluations < 2 * million.evaluations


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_columns_left_out_come_back_without_losing_the_step(seed) -> None:
    """From Gaussian factors a few columns move first, then others, none of the first among them."""
    task = sparse_gaussian(100, 50, ones=5, seed=seed)
    generator = torch.Generator().manual_seed(10_000 + seed)
    w = ng.Diagonal(5).init_gaussian(50, scale=0.1, generator=generator)
    flow = ng.integrate(
        ng.euclidean, ng.Bernoulli(), ng.Diagonal(5), w, task.batch, until=1e6,
        times=torch.tensor([1e6], dtype=torch.float64), max_evaluations=10_000,
    )  # fmt: skip
    assert flow.status == "time reached", (flow.status, flow.evaluations)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_stages_in_single_precision_keep_the_tolerance(depth) -> None:
    """To times at which every σ underflows single precision; and to a finite optimum."""
    (x, y), w = separable(30, 20), start(depth, "free", 20)
    overlapping = torch.sign(x[:, 0] + 2 * randn(4)(30))
    for labels, until in ((y, 1e3), (y, 1e60), (overlapping, 1e5)):
        args = (ng.euclidean, ng.Bernoulli(), ng.Diagonal(depth), w, (x, labels))
        options = {"until": until, "times": torch.tensor([until], dtype=torch.float64)}
        flow = ng.integrate(*args, method="dual", max_evaluations=20_000, **options)
        judge = ng.integrate(*args, method="reduced", rtol=1e-6, **options)
        assert flow.status == judge.status == Status.TIME_REACHED
        found, wanted = (path.final.prod(0) for path in (flow, judge))
        assert float((found - wanted).norm() / wanted.norm()) < 1e-2, until


def test_smaller_tolerances_give_smaller_errors() -> None:
    x, y = separable(20, 30)
    args = (ng.euclidean, ng.Bernoulli(), ng.Diagonal(2), start(2, "free", 30), (x, y))
    exact = ng.integrate(*args, until=1e5, rtol=1e-8).final
    errors = [
        float((ng.integrate(*args, until=1e5, rtol=rtol).final - exact).norm() / exact.norm())
        for rtol in (1e-2, 1e-3, 1e-4, 1e-5)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 30


def test_direct_and_depth_one_are_the_same_flow() -> None:
    x, y = separable(9, 4)
    zero = torch.zeros(4, dtype=torch.float64)
    direct = ng.integrate(ng.euclidean, ng.Bernoulli(), ng.Direct(), zero, (x, y), until=1e3)
    deep = ng.integrate(ng.euclidean, ng.Bernoulli(), ng.Diagonal(1), zero[None], (x, y), until=1e3)
    assert torch.equal(direct.final, deep.final[0])


def test_sum_reduction_runs_n_times_faster() -> None:
    x, y = separable(10, 4)
    w = start(2, "free", 4)
    mean = ng.integrate(ng.euclidean, ng.Bernoulli(), ng.Diagonal(2), w, (x, y), until=100.0)
    total = ng.integrate(
        ng.euclidean, ng.Bernoulli(reduction="sum"), ng.Diagonal(2), w, (x, y), until=10.0
    )
    assert torch.allclose(mean.final, total.final, rtol=1e-6)


def test_rows_left_out_come_back() -> None:
    """Late rows matter again when the smallest margin moves; the active set is rechecked."""
    x, y = separable(200, 5, seed=3)
    signed = y[:, None] * x
    flow = DualFlow(signed, start(1, "tied", 5), 1 / 200, rtol=1e-5)
    while flow.t < 1e8:
        assert flow.step(1e8) is None
    everyone = ng.integrate(
        ng.euclidean, ng.Bernoulli(), ng.Diagonal(1), start(1, "tied", 5), (x, y),
        until=1e8, method="lsoda", rtol=1e-9,
    )  # fmt: skip
    assert float((flow.w - everyone.final).norm() / everyone.final.norm()) < 1e-3


@pytest.mark.parametrize("size", [1.0, 1e50])
def test_a_flow_at_its_finite_optimum_waits_for_the_end(size) -> None:
    """At 1e100 times the time in which it converges, only rounding is left of the gradient."""
    draw = randn(0)
    x, y = size * draw(20, 5), torch.sign(draw(20))
    start = torch.zeros(5, dtype=torch.float64)
    args = (ng.euclidean, ng.Bernoulli(), ng.Direct(), start, (x, y))
    path = ng.integrate(*args, until=1e100 / size**2, max_evaluations=2000)
    assert path.status == Status.TIME_REACHED, path.detail
    early = ng.integrate(*args, until=1e6 / size**2)
    assert torch.allclose(path.final, early.final, rtol=1e-9)


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("power", [-390, 390, 480])
def test_inputs_of_any_size_follow_the_flow_of_inputs_of_size_one(depth, power) -> None:
    """X c^L, layers w/c and time t/c² follow the same flow, to the last bit for c a power of 2."""
    draw, c = randn(0), 2.0 ** (power // depth)
    x, y = draw(12, 5), torch.sign(draw(12))
    w = 0.3 + 0.1 * draw(depth, 5)

    def flow(x, w, until):
        model = ng.Diagonal(depth)
        args = (ng.euclidean, ng.Bernoulli(), model, w, (x, y))
        return ng.integrate(*args, until=until, method="dual")

    plain, scaled = flow(x, w, 50.0), flow(x * c**depth, w / c, 50.0 / c**2)
    assert scaled.status == Status.TIME_REACHED, scaled.detail
    assert torch.equal(scaled.final * c, plain.final)
    assert torch.allclose(scaled.times * c**2, plain.times, rtol=1e-12)


def test_times_far_beyond_all_others_cost_a_few_steps() -> None:
    draw = randn(0)
    x = draw(30, 4)
    start = torch.zeros(4, dtype=torch.float64)
    args = (ng.euclidean, ng.Bernoulli(), ng.Direct(), start, (x, torch.sign(x[:, 0])))
    path = ng.integrate(*args, until=1e300, max_evaluations=2000)
    assert path.status == Status.TIME_REACHED, path.detail
    limit = ng.limits.max_margin(x, torch.sign(x[:, 0])).solution
    assert float(ng.diagnostics.angle(path.final, limit)) < 1.0
