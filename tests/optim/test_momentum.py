"""Directions of averaged gradients: what is averaged, how long the step is, how it is judged."""

import math

import pytest
import torch
from torch.nn import Linear

from natgrad import Gaussian, Network, reference
from natgrad.errors import InvalidInputError, NonFiniteError
from natgrad.optim import NGD, EqualShare, Factors, PerLayer, Quadratic
from natgrad.optim.momentum import Momentum
from tests.helpers import F64, assert_near, randn
from tests.optim.nets import backward, mlp, seeded, train, weights_of

BATCHES = [(randn(6, 3, seed=2 * k), randn(6, 2, seed=2 * k + 1)) for k in range(8)]


def perceptron():
    return seeded(lambda: mlp(3, 5, 2))


def test_under_heavy_damping_steps_are_those_of_averaged_gradients():
    """Nesterov's average, its weights normalised: each gradient by what is left of it."""
    damping, mu = 1e8, 0.7
    criterion, model = Gaussian(), perceptron()
    optimizer = NGD(model, criterion, momentum=mu, damping=damping, step_length=EqualShare())
    seen: list[torch.Tensor] = []
    for x, y in BATCHES:
        before = reference.flatten(weights_of(model))
        backward(model, criterion, x, y)
        seen.append(reference.flatten([p.grad for p in model.parameters()]))
        optimizer.step()
        # At the second step 1 − α = ½ < μ: equal shares of two layers forget faster than that.
        rate = min(mu, 1 - 1 / 2)
        weights = [rate ** (len(seen) - 1 - k) for k in range(len(seen))]
        average = sum(w * g for w, g in zip(weights, seen, strict=True)) / sum(weights)
        past = mu * sum(weights)
        ahead = (past * average + seen[-1]) / (past + 1)
        step = reference.flatten(weights_of(model)) - before
        assert_near(step, -ahead / (2 * damping), 1e-3)


def test_the_length_is_the_minimum_of_the_quadratic_model_along_the_average():
    criterion, model, damping = Gaussian(), perceptron(), 0.05
    optimizer = NGD(
        model, criterion, step_length=Quadratic(), damping=damping, refresh=1, momentum=0.9
    )
    for x, y in BATCHES:
        network = Network(model)
        fisher = reference.fisher(criterion, network, network.init(), x)
        before = reference.flatten(weights_of(model))
        backward(model, criterion, x, y)
        batch = reference.flatten([p.grad for p in model.parameters()])
        optimizer.step()
        stats = optimizer.statistics
        d = (before - reference.flatten(weights_of(model))) / stats.length
        bend = float(d @ fisher @ d + damping * d @ d)
        slope = stats.share / 2 * bend  # that of the average, not of the batch
        decrease = stats.length * float(batch @ d) - stats.length**2 * bend / 2
        assert stats.predicted == pytest.approx(decrease, rel=1e-3, abs=1e-6)
        assert stats.length <= slope / bend * (1 + 1e-9)
    assert slope != pytest.approx(float(batch @ d), rel=0.1)


def test_a_model_that_is_quadratic_has_ratio_one_even_when_an_increase_is_predicted():
    criterion, model = Gaussian(), seeded(lambda: Linear(3, 2))
    optimizer = NGD(
        model, criterion, step_length=Quadratic(), damping=1e-4, refresh=1, momentum=0.9, lr=0.1
    )
    found = []
    for k in range(200):
        x, y = randn(8, 3, seed=2 * k), randn(8, 2, seed=2 * k + 1)
        backward(model, criterion, x, y)
        optimizer.step()
        stats = optimizer.statistics
        found.append(stats.predicted)
        assert stats.ratio == pytest.approx(1, abs=0.02)
    assert min(found) < 0 < max(found)


def test_a_full_step_leaves_nothing_of_earlier_gradients():
    """A linear layer is at its minimum after one step; an old gradient would carry it past."""
    criterion, model = Gaussian(), seeded(lambda: Linear(3, 2, bias=False))
    x, y = randn(20, 3, seed=3), randn(20, 2, seed=4)
    optimizer = NGD(
        model, criterion, step_length=Quadratic(), damping=1e-9, factors=Factors(memory=0)
    )
    for _ in range(3):
        backward(model, criterion, x, y)
        optimizer.step()
    assert_near(model.weight.mT, torch.linalg.lstsq(x, y).solution, 1e-6)


def test_gradients_in_other_units_have_the_same_average():
    ends = []
    for sums in (False, True):
        model = perceptron()
        criterion = Gaussian(reduction="sum" if sums else "mean")
        optimizer = NGD(model, criterion)
        for k, (x, y) in enumerate(BATCHES):
            optimizer.zero_grad()
            factor = 3.0 if sums and k % 2 else 1.0
            (factor * criterion(model(x), y)).backward()
            optimizer.step()
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert_near(a, b, 1e-8)


def test_gradients_are_left_as_they_came_and_parameters_without_one_stay():
    criterion, model = Gaussian(), perceptron()
    optimizer = NGD(model, criterion)
    for k, (x, y) in enumerate(BATCHES):
        backward(model, criterion, x, y)
        if k == 3:
            model[0].weight.grad = model[0].bias.grad = None
        held = [(p.grad, p.grad if p.grad is None else p.grad.clone()) for p in model.parameters()]
        before = weights_of(model)
        optimizer.step()
        for p, (grad, value) in zip(model.parameters(), held, strict=True):
            assert p.grad is grad
            assert grad is None or torch.equal(grad, value)
        if k == 3:
            assert torch.equal(weights_of(model)[0], before[0])


def test_single_data_join_an_average_only_if_there_is_one():
    criterion, model = Gaussian(), perceptron()
    optimizer = NGD(model, criterion)
    for n, kept in ((1, 0), (1, 0), (6, 4), (1, 4)):
        backward(model, criterion, BATCHES[0][0][:n], BATCHES[0][1][:n])
        optimizer.step()
        assert len(optimizer._momentum.values) == kept
    assert optimizer._momentum.weight > 1


def test_no_step_is_longer_than_the_last_ten_on_average():
    momentum = Momentum(0.8)
    assert momentum.shorten(0.2) == pytest.approx(0.2)
    assert momentum.shorten(0.8) == pytest.approx(0.4)
    for _ in range(200):
        momentum.shorten(0.1)
    assert momentum.shorten(10.0) == pytest.approx(0.1 * 100**0.1, rel=1e-3)
    assert momentum.shorten(0.05) == 0.05
    assert momentum.shorten(math.inf) == math.inf


@pytest.mark.parametrize("wrong", [-0.1, 1.0, math.nan, None])
def test_momentum_that_makes_no_sense_is_refused(wrong):
    with pytest.raises(InvalidInputError, match="at least 0 and below 1"):
        NGD(Linear(2, 1).to(F64), Gaussian(), momentum=wrong)


def test_a_refused_step_leaves_the_average_alone():
    criterion, model = Gaussian(), perceptron()
    optimizer = NGD(model, criterion, step_length=Quadratic())
    for x, y in BATCHES[:3]:
        backward(model, criterion, x, y)
        optimizer.step()
    momentum = optimizer._momentum
    before = {p: value.clone() for p, value in momentum.values.items()}, momentum.weight
    backward(model, criterion, *BATCHES[3])
    for p in model.parameters():
        p.grad.fill_(1e153)
    held = weights_of(model)
    with pytest.raises(NonFiniteError, match="overflows"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(weights_of(model), held, strict=True))
    assert momentum.weight == before[1]
    assert all(torch.equal(momentum.values[p], value) for p, value in before[0].items())


def test_a_length_for_every_layer_has_momentum_too():
    ends = []
    for mu in (0.0, 0.8):
        criterion, model = Gaussian(), perceptron()
        optimizer = NGD(model, criterion, momentum=mu, step_length=PerLayer(), damping=0.1)
        for x, y in BATCHES:
            backward(model, criterion, x, y)
            optimizer.step()
        ends.append(reference.flatten(weights_of(model)))
    assert optimizer._momentum.weight > 1
    assert float((ends[0] - ends[1]).abs().max()) > 1e-3


def test_a_state_without_momentum_is_refused_by_an_optimizer_that_has_it():
    criterion, plain, used = Gaussian(), perceptron(), perceptron()
    first, second = NGD(plain, criterion, momentum=0.0), NGD(used, Gaussian())
    for x, y in BATCHES[:4]:
        backward(plain, criterion, x, y)
        first.step()
        backward(used, second.likelihood, x, y)
        second.step()
    held = second._momentum.weight
    for one, other in ((first, second), (second, first)):
        with pytest.raises(InvalidInputError, match=r"natural\.momentum must be"):
            one.load_state_dict(other.state_dict())
    assert second._momentum.weight == held > 0


def test_a_step_that_is_never_undone_is_not_undone_at_a_loss_of_zero():
    criterion, model = Gaussian(), seeded(lambda: Linear(3, 2))
    optimizer = NGD(model, criterion, damping=0.1, refresh=1, lr=0.3)
    for x, y in BATCHES[:3]:
        backward(model, criterion, x, y)
        optimizer.step()
    x = BATCHES[3][0]
    backward(model, criterion, x, model(x).detach())
    optimizer.step()
    assert optimizer.statistics.loss == 0
    assert not optimizer.statistics.rejected


def test_an_average_that_has_nothing_to_do_with_a_batch_is_dropped():
    criterion, model = Gaussian(), seeded(lambda: Linear(3, 2))
    optimizer = NGD(model, criterion, step_length=Quadratic(), damping=1.0, lr=0.01)
    x, y = randn(20, 3, seed=3), randn(20, 2, seed=4)
    for _ in range(5):
        backward(model, criterion, x, y)
        optimizer.step()
    assert optimizer._momentum.weight > 3
    backward(model, criterion, x, 2 * model(x).detach() - y)  # the same gradient, uphill
    for p in model.parameters():
        p.grad.mul_(0.1)
    optimizer.step()
    backward(model, criterion, x, y)
    optimizer.step()
    assert optimizer._momentum.weight == 1
    for p in model.parameters():
        assert torch.equal(optimizer._momentum.values[p], p.grad)


def test_one_cycle_also_cycles_the_momentum():
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    x, y = randn(40, 3, seed=1), randn(40, 2, seed=2)
    optimizer = NGD(model, criterion)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=12)
    seen = []
    for _ in range(12):
        train(optimizer, criterion, x, y, 1)
        seen.append(optimizer._momentum.factor)
        scheduler.step()
    assert seen[0] == pytest.approx(0.95)
    assert min(seen) == pytest.approx(0.85, abs=0.01)
