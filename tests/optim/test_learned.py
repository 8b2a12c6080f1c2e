"""Learned lengths, falling damping, factors in blocks, Adam for what has no block."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.nn import (
    BatchNorm1d,
    Embedding,
    Flatten,
    HuberLoss,
    L1Loss,
    Linear,
    Module,
    ModuleList,
    MSELoss,
    Parameter,
    Sequential,
    Tanh,
)

from natgrad import Categorical, Gaussian
from natgrad.errors import InvalidInputError
from natgrad.optim import NGD, Adaptive, Factors, Falling, Fixed, Learned, Loss, Quadratic
from natgrad.optim._curvature.factor import Gram, symmetric
from natgrad.optim._curvature.inverse import Blocks
from natgrad.optim._layers.convolution import ConvLayer
from natgrad.optim._layers.coverage import UncoveredWarning
from natgrad.optim._layers.linear import LinearLayer
from natgrad.optim.damping import Adaptation
from tests.helpers import F64, assert_near, randn
from tests.optim.nets import backward, joint, mlp, seeded, train, weights_of

X, Y = randn(40, 3, seed=1), randn(40, 2, seed=2)


def gradients(model) -> dict[str, Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_a_first_step_has_the_norm_of_its_layer_along_the_damped_direction():
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion, factors=Factors(source="exact", memory=0), weight_decay=0)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    backward(model, criterion, X, Y)
    found = gradients(model)
    optimizer.step()
    change = {name: p.detach() - before[name] for name, p in model.named_parameters()}
    for name, (m, n) in {"0": (5, 4), "2": (2, 6)}.items():
        block = optimizer._core.preconditioner.blocks[name]
        inputs, errors = (symmetric(f.matrix) for f in (block.inputs, block.errors))
        # δ = 1: the mean eigenvalue of each factor is added to it
        left, right = (
            f + f.diagonal().mean() * torch.eye(len(f), dtype=F64) for f in (errors, inputs)
        )
        d = torch.linalg.solve(left, joint(found, name)) @ torch.linalg.inv(right)
        norm = 0.03 * math.sqrt(min(m, n) * max(1.0, m / n))
        assert_near(joint(change, name), -norm * d / d.norm(), 1e-9)


@pytest.mark.parametrize(("scale", "share"), [(1.0, 1.0), (0.1, None), (0.0, 0.01)])
def test_first_steps_change_small_weights_by_a_tenth_at_most(scale, share):
    """Weights of a SIREN are twelve times smaller than usual ones; zeros have no size."""
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    with torch.no_grad():
        model[0].weight.mul_(scale)
        model[0].bias.mul_(scale)
    optimizer = NGD(model, criterion, weight_decay=0.0)
    before = weights_of(model)[:2]
    size = math.hypot(*(float(a.norm()) for a in before))
    train(optimizer, criterion, X, Y, 1)
    pairs = zip(weights_of(model)[:2], before, strict=True)
    moved = math.hypot(*(float((a - b).norm()) for a, b in pairs))
    norm = math.sqrt(5)  # of a direction of a 5 × 4 matrix
    assert moved == pytest.approx(0.1 * size if share is None else 0.03 * share * norm, rel=1e-3)


def test_lengths_follow_the_slope_that_is_left():
    """Against the formula, from gradients and weights alone."""
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion, momentum=0.0, weight_decay=0.0)
    logs, left = dict.fromkeys(("0", "2"), math.log(0.03)), 0.0
    past: dict[str, tuple[Tensor, float]] = {}
    for k in range(12):
        x, y = randn(40, 3, seed=10 + k), randn(40, 2, seed=40 + k)
        backward(model, criterion, x, y)
        g = gradients(model)
        found = {
            name: max(-1.0, min(1.0, float((joint(g, name) * d).sum()) / slope))
            for name, (d, slope) in past.items()
        }
        left = (left + min(found.values())) / 2 if found else left
        far = max(0.0, left - 0.6) / 0.4
        for name, h in found.items():
            logs[name] += h * (0.1 + 0.4 * far if h > 0 else 0.1)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer.step()
        steps = {name: before[name] - p.detach() for name, p in model.named_parameters()}
        past = {}
        for name in logs:
            d = joint(steps, name)
            past[name] = d, float((joint(g, name) * d).sum())
            assert optimizer._lengths.values[name] == pytest.approx(math.exp(logs[name]), rel=1e-9)
    assert min(logs.values()) != pytest.approx(math.log(0.03), abs=0.05)


def test_lengths_that_are_far_too_short_grow_fast():
    """Along a straight line all of the slope is left: after ten steps η grows by e^½ each time."""
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion, step_length=Learned(start=1e-9), momentum=0.0)
    train(optimizer, criterion, X, Y, 10)
    before = dict(optimizer._lengths.values)
    train(optimizer, criterion, X, Y, 1)
    for name in ("0", "2"):
        grown = optimizer._lengths.values[name] / before[name]
        assert grown == pytest.approx(math.exp(0.5), rel=2e-3)


def test_lengths_stay_above_a_fifth_of_their_mean():
    """Batches of a short epoch oppose each other, and lengths would fall exponentially."""
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    batches, seen = torch.arange(40).reshape(4, 10), {"0": list[float](), "2": list[float]()}
    for k in range(600):
        rows = batches[k % 4]
        train(optimizer, criterion, X[rows], Y[rows], 1)
        for name, values in seen.items():
            values.append(optimizer._lengths.values[name])
    for values in seen.values():
        relative = [values[k] * k / sum(values[:k]) for k in range(1, 600)]
        assert min(relative) > 0.2 * (1 - 1e-9)
        assert relative[-1] == pytest.approx(0.2, rel=1e-3)  # in the end the bound holds them
        assert values[599] / values[299] == pytest.approx(2**-0.8, rel=0.1)


def noisy(outputs: int) -> tuple[Tensor, Tensor]:
    """Eight samples, and labels that have nothing to do with them."""
    return randn(8, 6, seed=3), 3 * randn(8, outputs, seed=4)


def test_damping_rises_where_a_block_predicts_more_than_the_loss():
    """Against gradients, factors and the loss; then the step is that of the block's own damping."""
    x, y = noisy(2)
    model, criterion = seeded(lambda: mlp(6, 20, 2)), Gaussian()
    factors = Factors(source="exact", memory=0)
    optimizer = NGD(
        model, criterion, refresh=1, momentum=0.0, factors=factors, damping=Falling(floor=1e-6)
    )
    common, own, raised = 1.0, {"0": 1.0, "2": 1.0}, 0
    for k in range(60):
        noise = randn(8, 2, seed=50 + k)  # labels that no step can learn
        loss = float(criterion(model(x), y + noise).detach())
        backward(model, criterion, x, y + noise)
        g = gradients(model)
        optimizer.step()
        if optimizer.statistics.rejected:
            break
        kept = dict(own)
        for name, block in optimizer._core.preconditioner.blocks.items():
            inputs, errors = (symmetric(f.matrix) for f in (block.inputs, block.errors))
            ridge = math.sqrt(kept[name])
            left, right = (
                f + ridge * f.diagonal().mean() * torch.eye(len(f), dtype=F64)
                for f in (errors, inputs)
            )
            d = torch.linalg.solve(left, joint(g, name)) @ torch.linalg.inv(right)
            assert_near(block.direction(joint(g, name)), d, 1e-7)
            m, n = d.shape
            norm = math.sqrt(min(m, n) * max(1.0, m / n))
            whole = optimizer._lengths.values[name] * norm >= float(d.norm())
            excess = float((joint(g, name) * d).sum()) / 2 > loss and not whole
            rises = excess and kept[name] <= 0.3
            own[name] = min(0.3, kept[name] / 0.7) if rises else max(1e-6, kept[name] * 0.7)
            raised += rises
        common = max(1e-6, common * 0.7)
        assert optimizer._damping.value == pytest.approx(common, rel=1e-12)
        for name in own:
            found = optimizer._damping.raised.get(name, optimizer._damping.value)
            assert found == pytest.approx(own[name], rel=1e-9)
    assert raised > 5
    assert k > 30


@pytest.mark.parametrize(
    ("criterion", "rises"),
    [
        (Gaussian(), True),
        (MSELoss(), True),
        (L1Loss(), False),
        (HuberLoss(delta=0.1), False),
        (Categorical(), False),
        (Loss(lambda f, y: (f - y).square().mean()), False),
    ],
    ids=["Gaussian", "MSELoss", "L1Loss", "HuberLoss", "Categorical", "Loss"],
)
def test_damping_of_other_losses_only_falls(criterion, rises):
    """Predictions beyond a loss that bends, or may be negative, are common: they show no noise."""
    x, y = noisy(3)
    optimizer = NGD(seeded(lambda: mlp(6, 20, 3)), criterion, refresh=1)
    raised = []
    for k in range(40):
        labels = y + randn(8, 3, seed=50 + k)
        if isinstance(criterion, Categorical):
            labels = (torch.arange(8) + k) % 3
        train(optimizer, criterion, x, labels, 1)
        raised.append(bool(optimizer._damping.raised))
    assert any(raised) == rises


def raising() -> NGD:
    """An optimizer with raised damping in both layers."""
    x, y = noisy(2)
    optimizer = NGD(seeded(lambda: mlp(6, 20, 2)), MSELoss(), refresh=1)
    for k in range(60):
        train(optimizer, optimizer._core.capture.criterion.criterion, x, y + randn(8, 2, seed=k), 1)
        if len(optimizer._damping.raised) == 2:
            return optimizer
    raise AssertionError(optimizer._damping.raised)


def test_a_frozen_layer_leaves_its_raised_damping():
    optimizer, (x, y) = raising(), noisy(2)
    optimizer.model[0].requires_grad_(False)
    train(optimizer, optimizer._core.capture.criterion.criterion, x, y, 1)
    assert set(optimizer._damping.raised) <= {"2"}
    optimizer.load_state_dict(optimizer.state_dict())


def test_another_rule_does_not_take_raised_damping():
    optimizer = raising()
    other = NGD(seeded(lambda: mlp(6, 20, 2)), MSELoss(), refresh=1, damping=0.5)
    other.load_state_dict(optimizer.state_dict())
    assert other._damping.raised == {}
    same = NGD(seeded(lambda: mlp(6, 20, 2)), MSELoss(), refresh=1)
    same.load_state_dict(optimizer.state_dict())
    assert same._damping.raised == optimizer._damping.raised != {}


def test_the_damping_of_a_block_that_no_batch_asks_waits():
    rule = Adaptation(Falling())
    rule.value, rule.raised = 0.01, {"a": 0.1, "b": 0.1}
    seen = {"refreshed": False, "rejected": False, "since": 1, "depth": 2, "scale": 1.0}
    rule.adapt(9, None, 1.0, possible={"a": 0.5}, **seen)
    assert rule.raised == {"a": pytest.approx(0.1 / 0.7), "b": 0.1}
    rule.adapt(10, None, 1.0, possible={"a": math.inf, "b": 2.0}, **seen)
    assert rule.raised == {"a": pytest.approx(0.1), "b": pytest.approx(0.07)}


def test_rows_of_a_table_move_equally_far_however_few_a_batch_reads():
    """With 6 of 500 rows in use, each moves as far as with a table of 6 rows."""
    tokens = torch.arange(6).repeat(5)
    y = randn(30, 2, seed=5)
    moved = []
    for rows in (6, 500):
        model = seeded(lambda: Sequential(Embedding(6, 4), Linear(4, 2)))
        table = Embedding(rows, 4, dtype=F64)
        table.weight.data.zero_()[:6] = model[0].weight.data
        model[0] = table
        optimizer = NGD(model, Gaussian(), damping=1e-9)
        before = table.weight.detach().clone()
        train(optimizer, optimizer.likelihood, tokens, y, 1)
        moved.append((table.weight.detach() - before)[:6])
        assert bool((table.weight[6:] == before[6:]).all())
    assert_near(moved[1], moved[0], 1e-3)  # up to the damping
    size = moved[0].norm(dim=1)
    assert 0.03 * 2 * 0.5 < float(size.mean()) < 0.03 * 2 * 1.01


def test_no_layer_steps_farther_than_its_natural_step():
    """One linear layer, exact factors: from far too long a start, the step is that of Newton."""
    model, criterion = seeded(lambda: Linear(3, 2, bias=False)), Gaussian()
    optimizer = NGD(
        model,
        criterion,
        step_length=Learned(start=1e3, ceiling=1e3),
        damping=1e-16,
        factors=Factors(memory=0),
    )
    train(optimizer, criterion, X, Y, 1)
    assert_near(model.weight.mT, torch.linalg.lstsq(X, Y).solution, 1e-6)


def test_a_step_after_which_the_loss_is_far_higher_is_undone():
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion, lr=300.0)
    starts, averages = [], []  # before each step
    while not optimizer.statistics.rejected:
        starts.append(weights_of(model))
        averages.append([value.clone() for value in optimizer._average.values])
        train(optimizer, criterion, X, Y, 1)
        assert len(starts) < 20
    assert "undone" in optimizer.statistics.notes[0]
    assert optimizer.statistics.step_norm == 0
    for a, b in zip(weights_of(model), starts[-2], strict=True):
        assert_near(a, b, 1e-12)
    for a, b in zip(optimizer._average.values, averages[-2], strict=True):
        assert_near(a, b, 1e-11)
    assert max(optimizer._lengths.values.values()) < 0.03
    train(optimizer, criterion, X, Y, 1)
    assert optimizer.statistics.refreshed
    assert not optimizer.statistics.rejected


def test_ten_times_past_its_target_the_loss_does_not_rise():
    """Noisy labels, small batches: lengths fall by themselves, as the slope that is left does."""
    model, criterion = seeded(lambda: mlp(4, 16, 1), dtype=torch.float32), Gaussian()
    x = randn(256, 4, seed=3).float()
    y = torch.sin(2 * x[:, :1]) + 0.3 * randn(256, 1, seed=4).float()
    optimizer, losses = NGD(model, criterion), []
    for k in range(2000):
        rows = slice(k % 8 * 32, k % 8 * 32 + 32)
        loss = criterion(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    at = [sum(losses[k - 40 : k]) / 40 for k in (200, 2000)]
    assert at[1] <= at[0]


def test_parameters_without_a_block_take_adams_steps():
    class Scaled(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.scale, self.outer = (
                Linear(3, 4),
                Parameter(torch.ones(4)),
                Linear(4, 2),
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.outer(self.scale * self.inner(x).tanh())

    model, criterion = seeded(Scaled), Gaussian()
    with pytest.warns(UncoveredWarning, match="Adam"):
        optimizer = NGD(model, criterion, momentum=0.0, weight_decay=0.0)
    squares, weight = torch.zeros(4, dtype=F64), 0.0
    for k in range(3):
        backward(model, criterion, randn(40, 3, seed=k), Y)
        g = model.scale.grad.clone()
        weight = 0.95 * weight + 1
        squares += (g.square() - squares) / weight
        before = model.scale.detach().clone()
        optimizer.step()
        length = optimizer._lengths.values["(others)"]
        assert_near(before - model.scale.detach(), length * g / (squares.sqrt() + 1e-8), 1e-10)


@pytest.mark.parametrize(("eta", "share"), [(0.03, 0.03**2), (0.15, 0.1**2)])
def test_weight_decay_is_the_square_of_a_short_step(eta, share):
    ends = []
    for amount in (0.0, 0.1, None):
        model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
        optimizer = NGD(model, criterion, weight_decay=amount, step_length=Learned(start=eta))
        train(optimizer, criterion, X, Y, 1)
        assert not optimizer._lengths._bound
        ends.append(weights_of(model))
    for plain, decayed, default in zip(*ends, strict=True):
        assert_near(decayed, plain / (1 + 0.1 * share), 1e-12)
        assert_near(default, plain / (1 + 0.3 * share), 1e-12)


def test_groups_decay_by_their_own_numbers():
    ends = []
    for amount in (0.0, 5.0):
        model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
        groups = [
            {"params": [model[0].weight], "weight_decay": amount},
            {"params": [model[2].bias], "lr": 0.0, "weight_decay": amount},
        ]
        optimizer = NGD(model, criterion, groups=groups, weight_decay=0.0, lr=0.5)
        train(optimizer, criterion, X, Y, 1)
        ends.append(weights_of(model))
    s = 0.5 * 0.03
    for k, (plain, decayed) in enumerate(zip(*ends, strict=True)):
        assert_near(decayed, plain / (1 + 5.0 * s * s) if k == 0 else plain, 1e-12)


def test_an_undone_step_is_undone_with_its_decay_after_the_rate_has_changed():
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion, weight_decay=50.0)
    train(optimizer, criterion, X, Y, 3)
    before, average = weights_of(model), [v.clone() for v in optimizer._average.values]
    train(optimizer, criterion, X, Y, 1)
    optimizer.param_groups[0]["lr"] = 0.1
    train(optimizer, criterion, X, 100 * Y, 1)
    assert optimizer.statistics.rejected
    for a, b in zip(weights_of(model), before, strict=True):
        assert_near(a, b, 1e-12)
    for a, b in zip(optimizer._average.values, average, strict=True):
        assert_near(a, b, 1e-11)


def test_a_step_is_not_undone_in_part_when_a_layer_was_frozen_after_it():
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    train(optimizer, criterion, X, Y, 4)
    model[0].requires_grad_(False)
    train(optimizer, criterion, X, 100 * Y, 1)
    assert not optimizer.statistics.rejected


def test_where_the_loss_is_zero_nothing_moves():
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer, before = NGD(model, criterion, weight_decay=100.0), weights_of(model)
    with torch.no_grad():
        fitted = model(X)
    train(optimizer, criterion, X, fitted, 3)
    for old, new in zip(before, weights_of(model), strict=True):
        assert torch.equal(new, old)


def test_a_whole_natural_step_does_not_decay():
    """Where all labels are fitted steps are that short, whatever the learned length."""
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion, step_length=Learned(start=0.1), weight_decay=100.0)
    with torch.no_grad():
        fitted = model(X) + 1e-9 * randn(*model(X).shape, seed=3)
    before = weights_of(model)
    train(optimizer, criterion, X, fitted, 1)
    assert optimizer._lengths._bound == {"0", "2"}
    for old, new in zip(before, weights_of(model), strict=True):
        assert_near(new, old, 1e-7)


def test_factors_in_blocks_are_the_diagonal_of_whole_ones():
    rows, wide = randn(30, 10, seed=5), randn(30, 11, seed=5)
    for ones, largest, count, k in ((False, 5, 2, 5), (True, 4, 3, 4)):
        whole = symmetric(Gram.of(rows, ones=ones).summed())
        found = Gram.of(rows, ones=ones, largest=largest).summed()
        assert found.shape == (count, k, k)
        for i in range(count):
            part = whole[i * k : (i + 1) * k, i * k : (i + 1) * k]
            assert_near(found[i, : len(part), : len(part)], part, 1e-12)
            assert not found[i, len(part) :].any()
    blocks = randn(3, 4, 4, seed=6)
    dense = torch.block_diag(*blocks)[:11, :11]
    assert_near(Blocks(blocks).right(wide), wide @ dense, 1e-12)
    assert_near(Blocks(blocks).left(wide.mT), dense @ wide.mT, 1e-12)


def test_a_step_with_blocks_is_that_of_block_diagonal_factors():
    model, criterion = seeded(lambda: mlp(9, 10, 2)), Gaussian()
    optimizer = NGD(model, criterion, damping=0.1, factors=Factors(block=4, source="exact"))
    x, y = randn(40, 9, seed=1), randn(40, 2, seed=2)
    backward(model, criterion, x, y)
    g = joint(gradients(model), "0")
    optimizer.step()
    block = optimizer._core.preconditioner.blocks["0"]
    inputs, errors = (
        torch.block_diag(*symmetric(f.matrix))[: f.side, : f.side]
        for f in (block.inputs, block.errors)
    )
    assert (len(inputs), len(errors)) == (10, 10)
    pi = math.sqrt(float(inputs.diagonal().mean() / errors.diagonal().mean()))
    left = errors + math.sqrt(0.1) / pi * torch.eye(10, dtype=F64)
    right = inputs + math.sqrt(0.1) * pi * torch.eye(10, dtype=F64)
    truth = torch.linalg.solve(left, g) @ torch.linalg.inv(right)
    assert_near(block.direction(g), truth, 1e-9)


def test_enough_rows_give_a_factor():
    layer = LinearLayer("l", Linear(4, 3))
    assert [layer.stride(torch.zeros(n, 4), 100) for n in (100, 199, 200, 1000)] == [1, 1, 2, 10]
    assert layer.stride(torch.zeros(64, 50, 4), 100) == 8  # eight samples at least
    assert layer.stride(torch.zeros(1000, 4), None) == 1
    conv = torch.nn.Conv2d(2, 3, 3, stride=2, padding=1, dilation=2)
    x = torch.zeros(6, 2, 11, 8)
    assert ConvLayer("c", conv).rows_each(x) == conv(x)[0, 0].numel()
    # The same samples twice, every second one summed: nothing changes.
    found = []
    for times, rows in ((1, None), (2, 20)):
        model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
        x = torch.repeat_interleave(randn(20, 3, seed=3), times, 0)
        y = torch.repeat_interleave(randn(20, 2, seed=4), times, 0)
        optimizer = NGD(model, criterion, factors=Factors(source="exact", memory=0, rows=rows))
        train(optimizer, criterion, x, y, 1)
        found.append(symmetric(optimizer._core.preconditioner.blocks["0"].inputs.matrix))
    assert_near(found[0], found[1], 1e-12)


def test_rules_that_do_not_suit_each_other_are_refused():
    for options, word in (
        ({"step_length": Learned(), "damping": Adaptive()}, "Quadratic"),
        ({"step_length": Learned(), "method": "conjugate_gradients"}, "one block per layer"),
        ({"damping": Falling(), "method": "conjugate_gradients"}, "one block per layer"),
    ):
        with pytest.raises(InvalidInputError, match=word):
            NGD(mlp(3, 2), Gaussian(), **options)
    assert isinstance(NGD(mlp(3, 2), Gaussian(), damping=Adaptive()).step_length, Quadratic)
    assert isinstance(NGD(mlp(3, 2), Gaussian(), step_length=Quadratic()).damping, Adaptive)
    both = NGD(seeded(lambda: mlp(3, 5, 2)), Gaussian(), step_length=Quadratic(), damping=Falling())
    losses = train(both, both.likelihood, X, Y, 20)
    assert losses[-1] < losses[0]
    assert isinstance(NGD(mlp(3, 2), Gaussian(), damping=0.1).damping, Fixed)


def test_the_average_of_the_weights_brings_its_buffers():
    def build():
        return Sequential(Linear(3, 4), BatchNorm1d(4), Tanh(), Linear(4, 3))

    model, criterion = seeded(build), Categorical()
    optimizer = NGD(model, criterion, weight_average=2.0)
    means = [model[1].running_mean.clone()]
    for k in range(4):
        train(optimizer, criterion, randn(16, 3, seed=k), torch.arange(16) % 3, 1)
        weight = 2.0 / (k + 1 + 2.0)
        means.append(model[1].running_mean.clone())
        average = means[0] if k == 0 else average  # noqa: F821
        average = average + weight * (means[-1] - average)
    count = int(model[1].num_batches_tracked)
    with optimizer.averaged():
        assert_near(model[1].running_mean, average, 1e-12)
        assert int(model[1].num_batches_tracked) == count
    assert_near(model[1].running_mean, means[-1], 1e-15)


class Experts(Module):
    """Three layers, of which each batch asks one."""

    def __init__(self) -> None:
        super().__init__()
        self.each = ModuleList(Linear(3, 2, dtype=F64) for _ in range(3))
        self.asked = 0

    def forward(self, x: Tensor) -> Tensor:
        chosen: Tensor = self.each[self.asked](x)
        return chosen


def test_lengths_are_learned_across_batches_that_leave_a_block_out():
    """Three experts, asked in turn, end where each would alone; undoing a step moves one."""
    torch.manual_seed(0)
    model, criterion = Experts(), Categorical()
    alone, x = copy.deepcopy(model.each[0]), randn(60, 3, seed=1)
    y = (x[:, 0] > x[:, 1]).long()
    single, optimizer = NGD(alone, criterion), NGD(model, criterion)
    for _ in range(20):
        loss = criterion(alone(x), y)
        single.zero_grad()
        loss.backward()
        single.step()
        for model.asked in range(3):
            found = criterion(model(x), y)
            optimizer.zero_grad()
            found.backward()
            optimizer.step()
    assert float(found.detach()) < 1.2 * float(loss.detach())
    before = copy.deepcopy(model.state_dict())
    optimizer._lengths._loss, optimizer._lengths._spread = -9.0, 0.0  # the loss has risen
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    assert optimizer.statistics.rejected
    moved = {name for name, p in model.state_dict().items() if not torch.equal(p, before[name])}
    assert moved == {"each.2.weight", "each.2.bias"}


@pytest.mark.parametrize(("width", "past"), [(300, 750.0), (1000, 2002.0)])
def test_wide_layers_remember_more_samples(width, past) -> None:
    model, criterion = seeded(lambda: mlp(width, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    backward(model, criterion, randn(20, width, seed=1), randn(20, 2, seed=2))
    optimizer.step()
    first, last = optimizer._core.preconditioner.blocks.values()
    assert (first.inputs.memory, first.errors.memory, last.inputs.memory) == (past, past, 750.0)


def test_texts_and_given_memories_are_left_alone() -> None:
    model, criterion = seeded(lambda: Sequential(mlp(1000, 5, 2), Flatten(0, -2))), Gaussian()
    for options, x in (
        ({"factors": Factors(memory=100.0)}, randn(20, 1, 1000, seed=1)),
        ({}, randn(20, 3, 1000, seed=1)),
    ):
        optimizer = NGD(model, criterion, **options)
        backward(model, criterion, x, randn(x.numel() // 1000, 2, seed=2))
        optimizer.step()
        wanted = 100.0 if options else 750.0
        found = optimizer._core.preconditioner.blocks.values()
        assert {block.inputs.memory for block in found} == {wanted}
        optimizer.zero_grad()
        optimizer.remove()
