"""The rest of torch.optim's contract: groups, schedulers, weight decay, clipping."""

import pytest
import torch
from torch.nn import Linear

from natgrad import Gaussian, Network, reference
from natgrad.errors import InvalidInputError
from natgrad.optim import NGD, EqualShare, Factors, Quadratic
from tests.helpers import assert_near, randn
from tests.optim.nets import backward, mlp, seeded, train, weights_of

X, Y = randn(10, 3, seed=1), randn(10, 2, seed=2)
ALONE = Factors(memory=0, source="exact")


def step(groups, **options):  # type: ignore[no-untyped-def]
    """One step of a fresh network; returns its changes by name, its optimizer and gradients."""
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    made = groups(model) if groups is not None else None
    optimizer = NGD(model, criterion, groups=made, factors=ALONE, **options)
    backward(model, criterion, X, Y)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer.step()
    changes = {name: p.detach() - before[name] for name, p in model.named_parameters()}
    return changes, optimizer, before


def test_every_group_has_its_own_rate():
    plain, _, _ = step(None, step_length=EqualShare())
    own, optimizer, _ = step(
        lambda m: [{"params": [m[0].weight], "lr": 0.25}, {"params": m[2].parameters(), "lr": 2.0}],
        step_length=EqualShare(),
    )
    assert [group["lr"] for group in optimizer.param_groups] == [0.25, 2.0, 1.0]
    for name, rate in {"0.weight": 0.25, "0.bias": 1.0, "2.weight": 2.0, "2.bias": 2.0}.items():
        assert_near(own[name], rate * plain[name], 1e-12)


def test_the_length_is_the_best_along_what_the_rates_leave():
    changes, optimizer, _ = step(
        lambda m: [{"params": [m[0].weight], "lr": 0.3}, {"params": m[2].parameters(), "lr": 0.0}],
        damping=0.2,
        step_length=Quadratic(),
    )
    stats = optimizer.statistics
    assert not changes["2.weight"].any()
    network = Network(seeded(lambda: mlp(3, 5, 2)))
    fisher = reference.fisher(Gaussian(), network, network.init(), X)
    g = reference.gradient(Gaussian(), network, network.init(), (X, Y))
    d = -reference.flatten(list(changes.values())) / stats.length
    bend = d @ fisher @ d + 0.2 * d @ d
    assert stats.length == pytest.approx(float((g @ d) / bend), rel=1e-5)
    assert stats.predicted == pytest.approx(float(stats.length * (g @ d) / 2), rel=1e-5)


def test_groups_that_make_no_sense_are_refused():
    model = seeded(lambda: mlp(3, 5, 2))
    with pytest.raises(InvalidInputError, match="not the model's"):
        NGD(model, Gaussian(), groups=[{"params": Linear(2, 2).parameters()}])
    with pytest.raises(InvalidInputError, match="two groups"):
        NGD(model, Gaussian(), groups=2 * [{"params": [model[0].weight]}])
    with pytest.raises(InvalidInputError, match="momentum"):
        NGD(model, Gaussian(), groups=[{"params": model[0].parameters(), "momentum": 0.9}])
    with pytest.raises(InvalidInputError, match="weight_decay"):
        NGD(model, Gaussian(), weight_decay=-1.0)


def test_weight_decay_is_apart_from_the_loss():
    plain, _, _ = step(None, step_length=Quadratic())
    decayed, optimizer, before = step(
        lambda m: [{"params": [m[0].bias, m[2].bias], "weight_decay": 0.0}],
        lr=1.0,
        weight_decay=0.01,
        step_length=Quadratic(),
    )
    for name, change in decayed.items():
        amount = 0.01 if "weight" in name else 0.0
        expected = (1 - amount) * (before[name] + plain[name]) - before[name]
        assert_near(change, expected, 1e-9)
    assert optimizer.statistics.predicted > 0


def test_schedulers_change_every_group():
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    groups = [{"params": model[0].parameters(), "lr": 0.5}]
    optimizer = NGD(model, criterion, groups=groups, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 0.5**k)
    for _ in range(3):
        train(optimizer, criterion, X, Y, 1)
        scheduler.step()
    assert [group["lr"] for group in optimizer.param_groups] == [0.0625, 0.125]
    before = weights_of(model)
    for group in optimizer.param_groups:
        group["lr"] = 0.0
    train(optimizer, criterion, X, Y, 1)
    for a, b in zip(before, weights_of(model), strict=True):
        assert torch.equal(a, b)


def test_groups_resume():
    ends = []
    for stop in (0, 3):
        model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()

        def make(model, criterion=criterion):  # type: ignore[no-untyped-def]
            groups = [{"params": model[0].parameters(), "lr": 0.5, "weight_decay": 0.1}]
            return NGD(model, criterion, groups=groups, weight_average=2.0)

        optimizer = make(model)
        if stop:
            train(optimizer, criterion, X, Y, stop)
            state, weights = optimizer.state_dict(), model.state_dict()
            model = seeded(lambda: mlp(3, 5, 2), seed=3)
            model.load_state_dict(weights)
            optimizer = make(model)
            optimizer.load_state_dict(state)
        train(optimizer, criterion, X, Y, 6 - stop)
        with optimizer.averaged():
            ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("fraction", [0.9, 0.1])
def test_clipping_the_norm_shortens_the_step_by_as_much(fraction):
    lengths = []
    for clip in (False, True):
        model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
        optimizer = NGD(model, criterion, step_length=Quadratic(), factors=ALONE)
        backward(model, criterion, X, Y)
        size = torch.nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), fraction * float(size))
        before = weights_of(model)
        optimizer.step()
        after = weights_of(model)
        lengths.append([b - a for a, b in zip(before, after, strict=True)])
        # The prediction is about the loss, not about the clipped gradient.
        assert optimizer.statistics.ratio == pytest.approx(1.0, abs=0.4)
    for whole, clipped in zip(*lengths, strict=True):
        assert_near(clipped, fraction * whole, 1e-4)
