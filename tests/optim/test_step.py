"""A step is the formula: (20) term by term, its limits, (21), and the flow it discretises."""

import math
from itertools import pairwise
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, ReLU, Sequential, Tanh

from natgrad import (
    Bernoulli,
    Categorical,
    DeepLinear,
    Gaussian,
    Network,
    descend,
    natural,
    reference,
    stopping,
)
from natgrad.errors import InvalidInputError, NonFiniteError
from natgrad.optim import NGD, Adaptive, EqualShare, Factors, Fixed, Quadratic, Scheduled
from natgrad.optim._curvature.factor import ridges
from natgrad.optim._steps.direction import Direction, Part
from natgrad.optim._steps.ruler import Ruler
from natgrad.optim.step_length import QuadraticModel
from tests.helpers import F64, assert_near, generator, pinv, randn
from tests.optim.nets import (
    backward,
    factors_of,
    joint,
    linear_chain,
    mlp,
    seeded,
    train,
    weights_of,
)

ALONE = Factors(memory=0)


def gradients(model) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def params(model) -> dict[str, Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_published_step_is_equation_20_term_by_term(reduction):
    criterion = Categorical(reduction=reduction)
    model, x = seeded(lambda: mlp(3, 5, 4, 3)), randn(8, 3, seed=1)
    y = torch.tensor([0, 1, 2, 1, 0, 2, 2, 1])
    optimizer = NGD.published(model, criterion, lr=0.7, damping=0.3)
    backward(model, criterion, x, y)
    before, g = params(model), gradients(model)
    optimizer.step()
    n = 8 if reduction == "sum" else 1
    for name, (inputs, errors) in factors_of(optimizer).items():
        ridge = math.sqrt(0.3)
        left = torch.linalg.inv(errors + ridge * torch.eye(len(errors), dtype=F64))
        right = torch.linalg.inv(inputs + ridge * torch.eye(len(inputs), dtype=F64))
        expected = -0.7 / 3 * left @ (joint(g, name) / n) @ right
        assert_near(joint(params(model), name) - joint(before, name), expected, 1e-12)


def test_pi_corrected_damping_is_relative_to_both_factors():
    criterion, model = Gaussian(), seeded(lambda: mlp(3, 5, 2))
    optimizer = NGD(model, criterion, damping=0.3, factors=ALONE, step_length=EqualShare(), lr=0.7)
    backward(model, criterion, randn(8, 3, seed=1), randn(8, 2, seed=2))
    before, g = params(model), gradients(model)
    optimizer.step()
    for name, (inputs, errors) in factors_of(optimizer).items():
        mean_in, mean_out = inputs.diagonal().mean(), errors.diagonal().mean()
        ridge_in = math.sqrt(0.3) * (mean_in / mean_out).sqrt()
        ridge_out = math.sqrt(0.3) * (mean_out / mean_in).sqrt()
        assert ridge_in / mean_in == pytest.approx(float(ridge_out / mean_out))
        left = torch.linalg.inv(errors + ridge_out * torch.eye(len(errors), dtype=F64))
        right = torch.linalg.inv(inputs + ridge_in * torch.eye(len(inputs), dtype=F64))
        expected = -0.35 * left @ joint(g, name) @ right
        assert_near(joint(params(model), name) - joint(before, name), expected, 1e-12)


def test_ridges_of_a_dead_layer_are_finite():
    assert ridges("pi", 0.04, 0.0, 1.0) == (0.2, 0.2)


def test_little_damping_is_the_natural_direction():
    criterion, model = Gaussian(), linear_chain(3, 3, 3)
    x, y = randn(9, 3, seed=3), randn(9, 3, seed=4)
    network = Network(linear_chain(3, 3, 3))
    truth = reference.natural(criterion, network, network.init(), (x, y))
    before = params(model)
    optimizer = NGD(
        model,
        criterion,
        damping=1e-14,
        factors=Factors(source="exact", memory=0),
        step_length=EqualShare(),
        lr=1e-6,
    )
    backward(model, criterion, x, y)
    optimizer.step()
    step = {name: (p - before[name]) / 1e-6 for name, p in params(model).items()}
    # Many natural directions, one velocity of the outputs.
    velocity = network.jvp(network.init(), x, step)
    assert_near(velocity, network.jvp(network.init(), x, truth), 1e-5)


def test_much_damping_is_gradient_descent():
    criterion, model = Bernoulli(), seeded(lambda: mlp(3, 4, 1))
    optimizer = NGD.published(model, criterion, lr=0.5, damping=1e6)
    backward(model, criterion, randn(6, 3, seed=5), torch.ones(6, dtype=F64))
    before, g = params(model), gradients(model)
    optimizer.step()
    for name, p in params(model).items():
        expected = -0.5 / (2 * 1e6) * g[name]
        assert_near(p - before[name], expected, 20 / math.sqrt(1e6))
    optimizer = NGD(model, criterion, lr=0.5, damping=1e8, step_length=EqualShare())
    backward(model, criterion, randn(6, 3, seed=5), torch.ones(6, dtype=F64))
    before, g = params(model), gradients(model)
    optimizer.step()
    for name, p in params(model).items():
        assert_near(p - before[name], -0.5 / (2 * 1e8) * g[name], 20 / math.sqrt(1e8))


@pytest.mark.parametrize("bias", [False, True])
def test_without_damping_pseudo_inverses_are_taken(bias):
    """Equation 10 as printed, on a network whose covariances are singular."""
    criterion, model = Gaussian(), linear_chain(3, 2, 4, bias=bias)
    x, y = randn(9, 3, seed=6), randn(9, 4, seed=7)
    optimizer = NGD(
        model,
        criterion,
        damping=0.0,
        factors=Factors(source="exact", memory=0),
        step_length=EqualShare(),
    )
    backward(model, criterion, x, y)
    before, g = params(model), gradients(model)
    optimizer.step()
    for name, (inputs, errors) in factors_of(optimizer).items():
        expected = -0.5 * pinv(errors) @ joint(g, name) @ pinv(inputs)
        assert_near(joint(params(model), name) - joint(before, name), expected, 1e-9)


@pytest.mark.parametrize("source", ["propagated", "exact"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_steps_are_euler_steps_of_the_natural_flow(source, reduction):
    """The optimizer's best test: k steps at lr = h equal k Euler steps of the flow at dt = h."""
    h, k, widths = 0.3, 12, (3, 3, 3, 3)
    criterion = Gaussian(
        torch.tensor([[1.5, 0.4, 0], [0.4, 0.7, 0], [0, 0, 2.0]], dtype=F64), reduction=reduction
    )
    x, y = randn(20, 3, seed=8), randn(20, 3, seed=9)
    model = linear_chain(*widths)
    w0 = tuple(layer.weight.detach().clone() for layer in model)
    flow = descend(
        natural,
        criterion,
        DeepLinear(widths),
        w0,
        (x, y),
        step=h,
        until=stopping.steps_reached(k),
        selection="equal_share",
    )
    optimizer = NGD(
        model,
        criterion,
        lr=h,
        damping=0.0,
        momentum=0.0,
        factors=Factors(source=source, memory=0),
        step_length=EqualShare(),
        refresh=1,
    )
    train(optimizer, criterion, x, y, k)
    for layer, w in zip(model, flow.final, strict=True):
        assert_near(layer.weight, w, 1e-9)


@pytest.mark.parametrize("options", [{}, {"step_length": EqualShare()}], ids=["default", "share"])
def test_the_reduction_does_not_change_the_run(options):
    x, y = randn(16, 3, seed=10), torch.randint(0, 3, (16,), generator=generator(11))
    ends = []
    for reduction in ("mean", "sum"):
        model, criterion = seeded(lambda: mlp(3, 6, 3)), Categorical(reduction=reduction)
        train(NGD(model, criterion, **options), criterion, x, y, 15)
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert_near(a, b, 1e-6)


@pytest.mark.parametrize("factor", [0.25, 1000.0])
def test_scaling_the_loss_does_not_change_the_step(factor):
    x, y, ends = randn(16, 3, seed=12), randn(16, 2, seed=13), []
    for scale in (1.0, factor):
        model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
        optimizer = NGD(model, criterion)
        for _ in range(3):
            optimizer.zero_grad()
            (scale * criterion(model(x), y)).backward()
            optimizer.step()
        ends.append((weights_of(model), optimizer.statistics.loss))
    assert ends[0][1] == pytest.approx(ends[1][1])
    for a, b in zip(ends[0][0], ends[1][0], strict=True):
        assert_near(a, b, 1e-6)


@pytest.mark.parametrize("rows", [12, 7], ids=["all-rows", "few-rows"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_accumulated_gradients_equal_one_large_batch(reduction, rows):
    x, y, ends = randn(12, 3, seed=14), randn(12, 2, seed=15), []
    for sizes in ((12,), (4, 4, 4), (5, 7)):
        model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian(reduction=reduction)
        optimizer = NGD(
            model, criterion, factors=Factors(source="exact"), step_length=Quadratic(rows=rows)
        )
        for _ in range(3):
            optimizer.zero_grad()
            for cx, cy in zip(x.split(sizes), y.split(sizes), strict=True):
                loss = criterion(model(cx), cy)
                (loss * len(cx) / 12 if reduction == "mean" else loss).backward()
            optimizer.step()
        ends.append((weights_of(model), optimizer.statistics.ratio))
    for weights, ratio in ends[1:]:
        assert ratio == pytest.approx(ends[0][1], rel=1e-5)
        for a, b in zip(ends[0][0], weights, strict=True):
            assert_near(a, b, 1e-6)  # difference quotients


def test_the_quadratic_step_length_is_the_minimum_of_the_dense_model():
    criterion, model = Categorical(), seeded(lambda: mlp(3, 5, 3))
    x, y = randn(10, 3, seed=16), torch.randint(0, 3, (10,), generator=generator(17))
    network = Network(seeded(lambda: mlp(3, 5, 3)))
    fisher = reference.fisher(criterion, network, network.init(), x)
    g = reference.gradient(criterion, network, network.init(), (x, y))
    optimizer = NGD(model, criterion, step_length=Quadratic(), lr=0.8, damping=0.2)
    before = reference.flatten(weights_of(model))
    backward(model, criterion, x, y)
    optimizer.step()
    stats = optimizer.statistics
    d = (before - reference.flatten(weights_of(model))) / stats.length
    bend = d @ fisher @ d + 0.2 * d @ d
    assert stats.length == pytest.approx(float(0.8 * (g @ d) / bend), rel=1e-5)
    t = stats.length
    assert stats.predicted == pytest.approx(float(t * g @ d - t * t * bend / 2), rel=1e-5)
    assert stats.share == pytest.approx(2 * stats.length / 0.8)


def test_actual_decrease_and_ratio_are_those_of_the_loss():
    criterion, model = Gaussian(), seeded(lambda: mlp(3, 5, 2))
    x, y = randn(10, 3, seed=18), randn(10, 2, seed=19)
    optimizer = NGD(model, criterion, step_length=Quadratic())
    loss = float(backward(model, criterion, x, y))
    optimizer.step()
    stats = optimizer.statistics
    after = float(criterion(model(x), y).detach())
    assert stats.loss == pytest.approx(loss)
    assert stats.actual == pytest.approx(loss - after)
    assert stats.ratio == pytest.approx(stats.actual / stats.predicted)


def test_exact_blocks_never_take_less_than_an_equal_share():
    """αL ≥ 1 where the Kronecker factors are exact, damping or not: F ≤ L blockdiag F."""
    for seed in range(5):
        model = linear_chain(4, 4, 4, 4, seed=seed)
        criterion, x, y = Gaussian(), randn(12, 4, seed=seed), randn(12, 4, seed=seed + 50)
        optimizer = NGD(
            model, criterion, damping=10.0**-seed, factors=Factors(source="exact", memory=0)
        )
        train(optimizer, criterion, x, y, 1)
        assert optimizer.statistics.share >= 1 - 1e-6


def by_hand(w1: float, w2: float, target: float, damping: float, steps: int) -> list[tuple]:
    """Equations 20, 21 and the corrected footnote for y = w₂w₁x at x = 1, loss ½(y − target)².

    Λ₁ = 1, Λ̃₁ = w₂², Λ₂ = w₁², Λ̃₂ = 1, L = 2, α = 1.
    """
    rows = []
    for _ in range(steps):
        e, r = w1 * w2 - target, math.sqrt(damping)
        d1 = e * w2 / ((w2**2 + r) * (1 + r)) / 2
        d2 = e * w1 / ((1 + r) * (w1**2 + r)) / 2
        predicted = (1 - 1 / 2) * (d1 * e * w2 + d2 * e * w1)
        w1, w2 = w1 - d1, w2 - d2
        ratio = (e**2 / 2 - (w1 * w2 - target) ** 2 / 2) / predicted
        rows.append((damping, predicted, ratio, w1, w2))
        damping *= 1.5 if ratio < 0.25 else 2 / 3 if ratio > 0.75 else 1
    return rows


@pytest.mark.parametrize(
    ("start", "path"),
    [((0.3, 0.2, 5.0, 1e-3), [1.5, 2 / 3, 2 / 3]), ((0.5, 0.4, 3.0, 1e-2), [1, 2 / 3, 2 / 3])],
    ids=["raised", "kept"],
)
def test_adaptive_damping_follows_equation_21(start, path):
    w1, w2, target, damping = start
    criterion, model = Gaussian(), Sequential(Linear(1, 1, bias=False), Linear(1, 1, bias=False))
    model = model.double()
    with torch.no_grad():
        model[0].weight.fill_(w1)
        model[1].weight.fill_(w2)
    optimizer = NGD.published(
        model, criterion, damping=damping, factors=Factors(source="exact", memory=0)
    )
    x, seen = torch.ones(1, 1, dtype=F64), []
    for wanted in by_hand(w1, w2, target, damping, steps=6):
        train(optimizer, criterion, x, target * x, 1)
        stats, weights = optimizer.statistics, [float(w) for w in weights_of(model)]
        assert (stats.damping, stats.predicted, stats.ratio, *weights) == pytest.approx(wanted)
        seen.append(stats.damping)
    assert [b / a for a, b in pairwise(seen)][:3] == pytest.approx(path)


def test_the_rule_raises_keeps_and_lowers():
    rule = Adaptive(start=1.0, floor=0.5, ceiling=2.0)

    def after(value, ratio, alpha=0.5, share=2.0):
        return rule.after(1, value, ratio=ratio, alpha=alpha, share=share)

    assert after(1.0, 0.2) == 1.5
    assert after(1.0, 0.5) == 1.0
    assert after(1.0, 0.9) == pytest.approx(2 / 3)
    assert after(1.0, 0.9, alpha=0.06, share=0.9) == 1.5  # too short a step
    assert after(1.0, 0.9, alpha=0.07, share=0.2) == pytest.approx(2 / 3)  # long enough
    assert after(1.0, 0.9, alpha=0.02, share=1.1) == pytest.approx(2 / 3)  # an equal share
    assert after(1.0, math.nan) == 1.5
    assert after(0.6, 0.9) == 0.5
    assert after(1.9, 0.0) == 2.0
    assert after(1.0, None, alpha=0.01, share=0.1) == 1.0


@pytest.mark.parametrize(
    "options",
    [{"start": 0.0}, {"up": 0.5}, {"down": 0.0}, {"low": 2.0}, {"split": "half"}, {"reject": -1.0}],
)
def test_rules_that_make_no_sense_are_refused(options):
    with pytest.raises(InvalidInputError):
        Adaptive(**options)


def test_fixed_and_scheduled_damping():
    x, y = randn(6, 2, seed=20), randn(6, 1, seed=21)
    seen = {}
    steps = 10  # of which some do not refresh
    for name, rule in {
        "number": 0.5,
        "fixed": Fixed(start=0.5),
        "scheduled": Scheduled(schedule=lambda k: 0.5 / (k + 1)),
    }.items():
        model, criterion = seeded(lambda: mlp(2, 3, 1)), Gaussian()
        optimizer, seen[name] = NGD(model, criterion, damping=rule), []
        for _ in range(steps):
            train(optimizer, criterion, x, y, 1)
            seen[name].append(optimizer.statistics.damping)
    assert seen["number"] == seen["fixed"] == [0.5] * steps
    assert seen["scheduled"] == [0.5 / (k + 1) for k in range(steps)]
    with pytest.raises(InvalidInputError, match="schedule at step 0 must be"):
        Scheduled(schedule=lambda k: -1.0)
    with pytest.raises(InvalidInputError, match="at least 0"):
        Fixed(start=-1.0)


def test_a_step_that_raises_the_loss_is_undone():
    criterion, model = Gaussian(), seeded(lambda: mlp(3, 5, 2))
    x, y = randn(10, 3, seed=22), randn(10, 2, seed=23)
    optimizer = NGD(model, criterion, step_length=Quadratic(), lr=50.0)
    before = weights_of(model)
    train(optimizer, criterion, x, y, 1)
    stats = optimizer.statistics
    assert stats.rejected
    assert stats.actual < 0
    for a, b in zip(before, weights_of(model), strict=True):
        assert torch.equal(a, b)
    train(optimizer, criterion, x, y, 1)
    assert optimizer.statistics.damping == pytest.approx(1.5**4 * optimizer.damping.start)
    assert optimizer.statistics.refreshed


def test_the_schedule_of_refreshes():
    criterion, x, y = Gaussian(), randn(20, 3, seed=26), randn(20, 2, seed=27)
    optimizer = NGD(seeded(lambda: mlp(3, 4, 2)), criterion, refresh=3, step_length=EqualShare())
    seen = []
    for _ in range(17):
        train(optimizer, criterion, x, y, 1)
        seen.append(optimizer.statistics.refreshed)
    assert [k for k, refreshed in enumerate(seen) if refreshed] == [0, 1, 2, 4, 7, 10, 13, 16]


def test_the_damping_follows_the_average_share_since_the_last_refresh():
    criterion, x, y = Gaussian(), randn(40, 6, seed=30), randn(40, 3, seed=31)
    model = seeded(lambda: mlp(6, 30, 30, 3))
    optimizer = NGD(model, criterion, step_length=Quadratic(), refresh=4, momentum=0.0)
    value, shares, decided = optimizer.damping.start, [], set()
    for k in range(60):
        rows = slice(k % 4 * 10, k % 4 * 10 + 10)  # small batches: short steps
        train(optimizer, criterion, x[rows], y[rows], 1)
        stats = optimizer.statistics
        assert stats.damping == pytest.approx(value)
        shares.append(stats.share)
        if stats.refreshed:
            assert not stats.rejected
            share = sum(shares) / len(shares)
            for _ in range(min(2, len(shares))):
                known = {"ratio": stats.ratio, "alpha": share / 3, "share": share}
                value = optimizer.damping.after(k, value, **known)
            decided.add((share / 3 < 1 / 16) != (shares[-1] / 3 < 1 / 16))
            shares.clear()
    assert decided == {False, True}  # the last share alone would have decided otherwise


def test_learning_rate_schedulers_act():
    criterion, x, y = Gaussian(), randn(6, 2, seed=28), randn(6, 1, seed=29)
    model = seeded(lambda: mlp(2, 3, 1))
    optimizer = NGD(model, criterion, step_length=EqualShare())
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    lengths = []
    for _ in range(3):
        train(optimizer, criterion, x, y, 1)
        scheduler.step()
        lengths.append(optimizer.statistics.length)
    assert lengths == [0.5, 0.25, 0.125]


def test_it_trains_a_classifier_with_nothing_set():
    source = generator(30)
    x = torch.randn(256, 2, generator=source)
    y = ((x.square().sum(1) > 1.4).long() + (x[:, 0] > 0).long()).long()
    model = seeded(lambda: Sequential(Linear(2, 32), Tanh(), Linear(32, 3)), dtype=torch.float32)
    criterion = Categorical()
    losses = train(NGD(model, criterion), criterion, x, y, 60)
    assert losses[0] > 1
    assert losses[-1] < 0.1


@pytest.mark.parametrize(
    ("loss", "verified", "custom", "slope", "length"),
    [
        (3.0, False, False, 8.0, 0.5),
        (3.0, True, False, 8.0, 1.0),
        (3.0, False, True, 8.0, 1.0),
        (-0.1, False, False, 8.0, 1.0),
        (5.0, False, False, 8.0, 1.0),
        (5.0, False, False, 2.0, 0.25),  # an increase of 2 to the minimum of this batch's model
        (5.0, False, False, -2.0, 0.0),
        (5.0, True, False, 2.0, 1.0),
    ],
)
def test_an_unverified_step_is_shortened_until_its_predicted_decrease_is_plausible(
    loss, verified, custom, slope, length
):
    class Stub:
        _measures = True

        def _rows_of(self, n):
            return n

        def _model(self, ruler, batch, direction, damping):
            return QuadraticModel(alpha=1.0, slope=slope, bend=8.0, pieces=[], share=1.0)

    direction = Direction([Part([torch.zeros(1)], [torch.ones(1)], slope=8.0)])
    batch = SimpleNamespace(n=2, calls=[], world=SimpleNamespace(size=1))
    ruler = Ruler(Stub(), custom=custom)
    ruler.reproduction.rows = -1
    found = ruler.length(
        batch, direction, 1.0, damping=0.0, loss=loss, verified=verified, usual=None
    )
    assert found.value == pytest.approx(length)
    assert found.predicted == pytest.approx(slope * length - 4 * length**2)
    assert length < 1 or found.predicted == pytest.approx(slope - 4)
    assert len(found.notes) == (length < 1)


@pytest.mark.parametrize("seed", [0, 1])
def test_labels_that_are_fitted_stay_fitted(seed):
    """Where all labels are certain the Fisher vanishes, and with it what holds a step back."""
    source = generator(seed)
    x, y = torch.rand(100, 40, generator=source), torch.randint(0, 10, (100,), generator=source)
    model = seeded(lambda: mlp(40, 60, 60, 10), dtype=torch.float32)
    criterion, losses = Categorical(), []
    optimizer = NGD(model, criterion)
    for k in range(400):
        rows = torch.arange(10 * k, 10 * (k + 1)) % 100
        losses.append(float(backward(model, criterion, x[rows], y[rows]).detach()))
        optimizer.step()
    assert max(losses[200:]) < 0.5


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_the_damping_stays_above_a_part_of_the_fishers_scale(size):
    criterion = Gaussian()
    # A linear model without noise: ρ = 1 for ever, which asks for less and less damping.
    x, model = size * randn(60, 4, seed=50), linear_chain(4, 4, 3)
    y = x @ randn(4, 3, seed=51)
    optimizer = NGD(model, criterion, damping=Adaptive(floor=1e-300, relative_floor=0.01))
    train(optimizer, criterion, x, y, 120)
    products = [
        float(inputs.diagonal().mean() * errors.diagonal().mean())
        for inputs, errors in factors_of(optimizer).values()
    ]
    scale = math.sqrt(math.prod(products))
    assert 0.9 < optimizer.statistics.damping / (0.01 * scale) < 2


@pytest.mark.parametrize("n", [1, 8])
@pytest.mark.parametrize(
    "make",
    [NGD.published, lambda *args, **o: NGD(*args, step_length=Quadratic(), damping=0.1, **o)],
)
def test_a_step_into_nan_is_undone_whatever_the_rule_keeps(make, n):
    criterion = Categorical()
    model = seeded(lambda: Sequential(Linear(3, 5), ReLU(), Linear(5, 4))).float()
    optimizer = make(model, criterion, lr=1e30)
    backward(model, criterion, randn(n, 3, seed=1).float(), torch.arange(n) % 4)
    before = params(model)
    optimizer.step()
    assert optimizer.statistics.rejected
    assert all(torch.equal(p, before[name]) for name, p in params(model).items())


def test_a_predicted_decrease_that_overflows_is_refused_with_a_sentence():
    criterion, model = Gaussian(), seeded(lambda: mlp(3, 5, 2))
    optimizer = NGD(model, criterion, step_length=Quadratic(), lr=1e200)
    backward(model, criterion, randn(8, 3, seed=1), randn(8, 2, seed=2))
    before = params(model)
    with pytest.raises(NonFiniteError, match="overflows along the direction"):
        optimizer.step()
    assert all(torch.equal(p, before[name]) for name, p in params(model).items())
