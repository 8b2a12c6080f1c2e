"""rtol is about the error at the end; `auto` chooses, and says what and why."""

import math

import pytest
import torch

import natgrad as ng
from benchmarks import flow_problems as flows
from natgrad.flows._methods.steppers.paired import PairedStepper
from natgrad.flows._methods.steppers.stepper import ChebyshevStepper, ScipyStepper, accuracy
from natgrad.flows._problem import Problem
from natgrad.parametrizations.base import flatten
from natgrad.stopping import Status
from tests.helpers import randn, signs

PROBLEMS = {
    "logistic": (lambda: flows.diagonal(60, 8, 1, 1e3, noise=2.0), "reduced"),
    "diagonal 1": (lambda: flows.diagonal(12, 30, 1, 1e4), "reduced"),
    "diagonal 2": (lambda: flows.diagonal(30, 70, 2, 1e4), "reduced"),
    "diagonal 3": (lambda: flows.diagonal(12, 20, 3, 1e4), "reduced"),
    "plane 2": (lambda: flows.diagonal(6, 2, 2, 1e6), "reduced"),
    "plane 4": (lambda: flows.diagonal(6, 2, 4, 1e4), "reduced"),
    "product 2": (lambda: flows.product(12, 2, 10.0), "completion"),
    "product 3": (lambda: flows.product(12, 3, 10.0), "completion"),
    "product 4": (lambda: flows.product(10, 4, 5.0), "completion"),
    "deep linear": (lambda: flows.deep_linear(8.0), "pair"),
    "softmax": (lambda: flows.softmax(1e2), "lsoda"),
    "tanh": (lambda: flows.tanh(2.0, labels=False), "pair"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_error_at_the_end_is_about_rtol(name) -> None:
    make, chosen = PROBLEMS[name]
    problem = make()
    start = flatten(problem.params)
    slope = flatten(Problem.checked(*problem.arguments, {}).velocity(problem.params))
    by_hand = torch.from_numpy(problem.field(start.numpy()))
    assert torch.allclose(slope, by_hand, rtol=1e-10, atol=1e-14)
    for rtol in (1e-3, 1e-5, 1e-7, 1e-10):
        error, path = problem.solve("auto", rtol)
        assert path.status == Status.TIME_REACHED, path.detail
        assert error <= 10 * rtol
        if rtol == 1e-5:
            assert path.method.startswith(chosen)
            assert "; chosen for " in path.method


@pytest.mark.parametrize(
    "name",
    [
        "logistic regression, 90 × 12",
        "diagonal L = 3 in three dimensions",
        "product L = 2, 25 × 25",
        "softmax",
        "tanh network, logistic",
        "ReLU network",
    ],
)
def test_the_error_is_about_rtol_on_data_that_chose_nothing(name) -> None:
    """Seeds, sizes and times that no tolerance was set on; the benchmark runs all of them."""
    problem = flows.FRESH[name](flows.SEEDS[0])
    for rtol in (1e-4, 1e-8):
        error, path = problem.solve("auto", rtol)
        assert path.status.reached, path.detail
        assert error <= 10 * rtol


def test_a_flow_in_single_precision_ends_where_the_one_in_double_does() -> None:
    """LSODA would stall: the differences it takes for its Jacobian vanish in float32."""
    x, y = randn(50, 8, seed=0), randn(50, 4, seed=1).argmax(1)
    ends = []
    for dtype in (torch.float32, torch.float64):
        path = ng.integrate(
            ng.euclidean, ng.Categorical(), ng.Direct(), torch.zeros(8, 4, dtype=dtype),
            (x.to(dtype), y), until=1e3, rtol=1e-6, max_evaluations=20_000,
        )  # fmt: skip
        assert path.status.reached, path.detail
        ends.append(path.final.double())
    assert torch.allclose(*ends, rtol=1e-4, atol=1e-5)


def test_the_relu_flow_by_hand_slides_as_ours_does() -> None:
    problem = flows.FRESH["ReLU network"](flows.SEEDS[0])
    assert problem.solve("auto", 1e-6)[1].status == Status.SLID


@pytest.mark.parametrize("method", ["pair", "rkc", "dop853", "dopri", "lsoda"])
def test_methods_mean_the_same_by_rtol(method) -> None:
    problem = flows.deep_linear(8.0)
    for rtol in (1e-3, 1e-6):
        assert problem.solve(method, rtol)[0] <= 10 * rtol


@pytest.mark.parametrize(("rate", "better"), [(300.0, "rkc"), (3.0, "dop853")])
def test_the_pair_takes_the_method_that_pays(rate, better) -> None:
    """y′ = λ(cos t − y) from 1: y = (λ² cos t + λ sin t + e^{−λt})/(1 + λ²)."""
    rates = torch.tensor([0.1, rate], dtype=torch.float64)
    start, end = torch.ones(2, dtype=torch.float64), 20.0

    def field(t: float, y: torch.Tensor) -> torch.Tensor:
        return -rates * (y - math.cos(t))

    def solved(stepper):
        while stepper.t < end:
            assert stepper.step() is None
        return stepper

    pair = solved(PairedStepper(field, start, end, rtol=1e-5, atol=1e-8))
    exact = rates**2 * math.cos(end) + rates * math.sin(end) + torch.exp(-end * rates)
    assert float((pair.y - exact / (1 + rates**2)).abs().max()) < 1e-4
    tolerances = {m: accuracy(m, 1e-5) for m in ("rkc", "dop853")}
    alone = {
        "rkc": ChebyshevStepper(field, start, end, rtol=tolerances["rkc"], atol=1e-9),
        "dop853": ScipyStepper("dop853", field, start, end, rtol=tolerances["dop853"], atol=3e-9),
    }
    cost = {m: solved(stepper).evaluations for m, stepper in alone.items()}
    assert min(cost, key=cost.__getitem__) == better
    assert pair.evaluations <= 1.3 * cost[better]


def test_a_mean_loss_completes_in_its_own_time() -> None:
    problem = flows.product(10, 2, 5.0)
    n = len(problem.batch[0])
    summed = ng.integrate(*problem.arguments, until=5.0, rtol=1e-8).final
    mean = ng.integrate(
        ng.euclidean, ng.Gaussian(), problem.model, problem.params, problem.batch,
        until=5.0 * n, rtol=1e-8,
    )  # fmt: skip
    assert mean.method.startswith("completion")
    for a, b in zip(mean.final, summed, strict=True):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-8)


def test_entries_observed_twice_are_not_for_the_completion_solver() -> None:
    problem = flows.product(6, 2, 1.0)
    x, y = (torch.cat([part, part[:1]]) for part in problem.batch)
    args = (ng.euclidean, problem.likelihood, problem.model, problem.params, (x, y))
    assert not ng.integrate(*args, until=1.0).method.startswith("completion")


def test_completion_obeys_stopping_rules_and_records() -> None:
    problem = flows.product(10, 2, 5.0)
    path = ng.integrate(
        *problem.arguments, until=ng.stopping.loss_below(1e-3),
        record={"norm": lambda w: w[0].norm()},
    )  # fmt: skip
    assert path.status == Status.CONVERGED
    assert float(path.losses[-1]) <= 1e-3 < float(path.losses[-2])
    assert path.recorded["norm"].shape == path.times.shape


def test_the_shortest_times_are_reached() -> None:
    """LSODA never ends there: its products of times underflow."""
    x, y = randn(12, 3, seed=0), signs(12, 1)
    for t in (1e-300, 1e-150):
        flow = ng.integrate(
            ng.euclidean,
            ng.Bernoulli(),
            ng.Diagonal(2),
            ng.Diagonal(2).init_free(3),
            (x, y),
            until=ng.stopping.time_reached(t),
        )
        assert flow.status == Status.TIME_REACHED
