"""Contests: steps against updates by hand, what is recorded, and networks that diverge."""

import math
import time
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import Linear

from natgrad.errors import NonFiniteError
from natgrad.experiments.blh18._contest import Contestant, best_rate, first_order, natural, run
from natgrad.experiments.blh18._linear.problems import linear_network, powered_factors
from natgrad.experiments.blh18._linear.tuning import Grid, Updates, gradients, grid
from natgrad.optim import NGD, Quadratic
from tests.experiments.blh18.test_problems import problem


def data(n: int = 60):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 6, generator=generator)
    return x, x @ torch.randn(6, 5, generator=generator)


def start():
    factors = powered_factors((6, 4, 5), 2.0, torch.Generator().manual_seed(1))
    return [w.float() for w in factors]


def test_sgd_is_the_update_by_hand() -> None:
    x, y = data(20)
    model = linear_network(start())
    step = first_order(model, "SGD", 0.05)
    w1, w2 = start()
    for _ in range(5):
        step(x, y)
        error = (x @ w1.mT @ w2.mT - y) / len(x)
        w1, w2 = w1 - 0.05 * w2.mT @ error.mT @ x, w2 - 0.05 * error.mT @ (x @ w1.mT)
    found = [layer.weight.detach() for layer in model]
    for mine, theirs in zip(found, (w1, w2), strict=True):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("rule", ["SGD", "momentum", "Adam"])
def test_rates_side_by_side_are_torchs_optimizers_one_by_one(rule) -> None:
    x, y = data(40)
    rates = (0.01, 0.03)
    stack = [w.double().expand(2, -1, -1).clone() for w in start()]
    update = Updates(rule, torch.tensor(rates, dtype=torch.float64)[:, None, None], stack)
    for _ in range(8):
        update(gradients(stack, x.double(), y.double()))
    for index, rate in enumerate(rates):
        model = linear_network([w.double() for w in start()])
        step = first_order(model, rule, rate)
        for _ in range(8):
            step(x.double(), y.double())
        for layer, w in zip(model, stack, strict=True):
            assert torch.allclose(layer.weight.detach(), w[index], rtol=1e-9, atol=1e-12)


def test_gradients_are_those_of_autograd() -> None:
    x, y = data(15)
    weights = [w.expand(3, -1, -1).clone().requires_grad_() for w in start()]
    loss = (x @ weights[0].mT @ weights[1].mT - y).square().sum() / (2 * len(x))
    wanted = torch.autograd.grad(loss, weights)
    for mine, theirs in zip(gradients(weights, x, y), wanted, strict=True):
        assert torch.allclose(mine, theirs, atol=1e-5)


def test_tuning_uses_validation_data_and_the_same_training() -> None:
    given = problem(examples=200, tests=10, noise=1e-6)
    found = grid(Grid(given, "momentum", 20, (0.01, 0.02, 50.0), 2))["validation"]
    assert found[1] < found[0]
    assert math.isinf(found[2])
    assert best_rate(found[None]) == 1


def test_the_best_rate_is_good_on_every_problem() -> None:
    assert best_rate(np.array([[0.1, 0.2, 0.01], [0.1, 0.2, math.inf]])) == 0


def entry(model, step, **changes):
    return Contestant(model, step, **{"batch": 20, "passes": 2, "every": 20} | changes)


def test_a_contest_records_examples_errors_and_seconds() -> None:
    models = [linear_network(start()) for _ in range(2)]
    short = entry(models[0], first_order(models[0], "SGD", 0.05), passes=1, every=40)
    long = entry(
        models[1], natural(models[1], partial(NGD, step_length=Quadratic())), batch=30, every=30
    )
    found = run([short, long], data(), data(), seed=0)
    assert found["examples"][0, :3].tolist() == [0, 40, 60]
    assert found["examples"][1].tolist() == [0, 30, 60, 90, 120]
    assert np.isnan(found["test"][0, 3:]).all()
    assert found["test"][0, 0] == found["test"][1, 0]
    assert found["test"][1, -1] < 0.5 * found["test"][1, 0]
    assert (np.diff(found["seconds"][1]) > 0).all()


def test_a_contest_repeats_bit_for_bit_except_for_seconds() -> None:
    def once():
        model = linear_network(start())
        return run([entry(model, natural(model, NGD.published))], data(), data(), seed=5)["test"]

    assert (once() == once()).all()


def test_evaluation_is_the_mean_squared_error_per_output() -> None:
    model = Linear(6, 5)
    x, y = data()
    error = entry(model, first_order(model, "SGD", 0.1)).evaluate((x, y))
    assert error == pytest.approx(float((model(x) - y).square().mean().detach()), rel=1e-6)
    assert model.training


def test_a_diverged_network_is_not_trained_and_its_error_is_infinite() -> None:
    model = linear_network(start())
    found = run([entry(model, first_order(model, "SGD", 1e4))], data(), data(), seed=0)
    assert math.isinf(found["test"][0, -1])
    assert found["examples"][0, -1] == 120


def test_a_refused_step_ends_the_training_of_one_contestant() -> None:
    model = linear_network(start())

    def refuse(x, y):
        raise NonFiniteError("the loss is nan")

    healthy = linear_network(start())
    entered = [entry(model, refuse), entry(healthy, first_order(healthy, "Adam", 0.01))]
    found = run(entered, data(), data(), seed=0)["test"]
    assert np.isinf(found[0, 1:]).all()
    assert found[1, -1] < found[1, 0]


def test_with_its_own_threads_a_contestant_is_timed_by_the_wall_clock() -> None:
    before, seen = torch.get_num_threads(), []

    def nap(x, y):
        seen.append(torch.get_num_threads())
        time.sleep(0.02)

    model = linear_network(start())
    entered = [
        Contestant(model, nap, batch=30, passes=1, every=60, threads=threads)
        for threads in (None, before + 1)
    ]
    found = run(entered, data(), data(), seed=0)["seconds"][:, -1]
    assert found[0] < 0.02 <= found[1] / 2
    assert seen == [before] * 2 + [before + 1] * 2
    assert torch.get_num_threads() == before
