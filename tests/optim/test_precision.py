"""Autocast, GradScaler, half precision, and the preconditioner by itself."""

import pytest
import torch
from torch.amp import GradScaler

from natgrad import Categorical, Gaussian
from natgrad.errors import InvalidInputError, NonFiniteError
from natgrad.optim import NGD, Factors, Fixed, Preconditioner, Quadratic
from tests.helpers import assert_near, generator, randn
from tests.optim.nets import backward, mlp, seeded, train, weights_of

X, Y = randn(40, 3, seed=1).float(), randn(40, 2, seed=2).float()
EXACT = Factors(source="exact")


def network(dtype: torch.dtype = torch.float32):  # type: ignore[no-untyped-def]
    return seeded(lambda: mlp(3, 8, 2), dtype=dtype)


def test_autocast_keeps_factors_in_single_precision():
    model, criterion = network(), Gaussian()
    optimizer = NGD(model, criterion)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = model(X)
            loss = criterion(output.float(), Y)
        assert output.dtype == torch.bfloat16
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
        assert not any("equal shares" in note for note in optimizer.statistics.notes)
        for block in optimizer._core.preconditioner.blocks.values():
            assert block.inputs.matrix.dtype == block.errors.matrix.dtype == torch.float32
    assert losses[-1] < 0.5 * losses[0]


def test_a_step_under_autocast_is_nearly_that_without():
    """Rounding of the pass to three digits moves the step by about as much."""
    steps, ratios = [], []
    for enabled in (False, True):
        model, criterion = network(), Gaussian()
        optimizer = NGD(model, criterion, factors=EXACT)
        before = weights_of(model)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            loss = criterion(model(X), Y)
        loss.backward()
        optimizer.step()
        pairs = zip(before, weights_of(model), strict=True)
        steps.append(torch.cat([(b - a).reshape(-1) for a, b in pairs]))
        ratios.append(optimizer.statistics.ratio)
        assert optimizer.statistics.notes == []
    assert_near(steps[1], steps[0], 0.03)
    assert ratios[1] == pytest.approx(ratios[0], abs=0.02)


@pytest.mark.parametrize("unscale", [False, True])
def test_a_grad_scaler_does_not_change_the_run(unscale):
    ends = []
    for enabled in (False, True):
        model, criterion = network(), Gaussian()
        optimizer = NGD(model, criterion, factors=EXACT)
        scaler = GradScaler("cpu", enabled=enabled, init_scale=1024.0, growth_interval=2)
        optimizer.scaler = scaler
        for _ in range(5):
            optimizer.zero_grad()
            scaler.scale(criterion(model(X), Y)).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        ends.append((weights_of(model), optimizer.statistics.loss))
    assert ends[0][1] == pytest.approx(ends[1][1], rel=1e-4)
    for a, b in zip(ends[0][0], ends[1][0], strict=True):
        assert_near(a, b, 1e-3)  # difference quotients in single precision


@pytest.mark.filterwarnings("ignore::natgrad.optim.AdaptationWarning")
@pytest.mark.parametrize("unscale", [False, True])
def test_a_grad_scaler_does_not_change_a_run_with_a_loss_of_ones_own(unscale):
    ends = []
    for enabled in (False, True):
        model = network()
        optimizer = NGD(model, Gaussian(), factors=EXACT, reduction="mean")
        scaler = GradScaler("cpu", enabled=enabled, init_scale=1024.0, growth_interval=2)
        for _ in range(5):
            optimizer.zero_grad()
            loss = 0.5 * (model(X) - Y).square().sum(1).mean()
            scaler.scale(loss).backward()
            if unscale:
                scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert_near(a, b, 1e-3)  # difference quotients in single precision


def test_a_step_that_overflowed_is_skipped():
    model, criterion = network(), Gaussian()
    optimizer, scaler = NGD(model, criterion), GradScaler("cpu", init_scale=2.0**100)
    before = weights_of(model)
    scaler.scale(1e30 * criterion(model(X), Y)).backward()
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() == 2.0**99
    assert optimizer.statistics.notes == ["skipped: overflow"]
    for a, b in zip(before, weights_of(model), strict=True):
        assert torch.equal(a, b)
    train(optimizer, criterion, X, Y, 1)
    assert optimizer.statistics.step == 1


def test_unscaled_gradients_need_the_scaler():
    model, criterion = network(), Gaussian()
    optimizer, scaler = NGD(model, criterion), GradScaler("cpu")
    scaler.scale(criterion(model(X), Y)).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(InvalidInputError, match=r"optimizer\.scaler"):
        scaler.step(optimizer)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("make", [NGD, NGD.published])
def test_a_single_sample_in_half_precision_trains(make, dtype):
    model, criterion = network(dtype), Gaussian()
    optimizer = make(model, criterion)
    losses = train(optimizer, criterion, X[:1].to(dtype), Y[:1].to(dtype), 10)
    assert losses[-1] < losses[0]


def test_weights_in_half_precision_train():
    model, criterion = network(torch.bfloat16), Gaussian()
    optimizer = NGD(model, criterion)
    losses = train(optimizer, criterion, X.bfloat16(), Y.bfloat16(), 10)
    assert losses[-1] < 0.7 * losses[0]
    block = optimizer._core.preconditioner.blocks["0"]
    assert block.inputs.matrix.dtype == torch.float32
    assert model[0].weight.dtype == torch.bfloat16


def test_a_state_moves_to_another_precision():
    first, criterion = network(torch.float64), Gaussian()
    optimizer = NGD(first, criterion)
    train(optimizer, criterion, X.double(), Y.double(), 3)
    second = network(torch.float32)
    second.load_state_dict(first.state_dict())
    resumed = NGD(second, Gaussian())
    resumed.load_state_dict(optimizer.state_dict())
    ours = train(resumed, resumed.likelihood, X, Y, 3)
    theirs = train(optimizer, criterion, X.double(), Y.double(), 3)
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5)
    assert ours[-1] < ours[0]


def test_the_preconditioner_gives_the_direction_of_the_optimizer():
    steps = []
    for alone in (True, False):
        model, criterion = seeded(lambda: mlp(3, 8, 2)), Gaussian()
        before = weights_of(model)
        if alone:
            precondition = Preconditioner(model, criterion, damping=0.2)
            backward(model, criterion, X.double(), Y.double())
            precondition()
            assert precondition.statistics.step == 1
            torch.optim.SGD(model.parameters(), lr=0.5).step()
        else:
            optimizer = NGD(
                model, criterion, step_length=Quadratic(), damping=Fixed(start=0.2), lr=0.5
            )
            backward(model, criterion, X.double(), Y.double())
            optimizer.step()
        pairs = zip(before, weights_of(model), strict=True)
        steps.append(torch.cat([(b - a).reshape(-1) for a, b in pairs]))
    cosine = torch.nn.functional.cosine_similarity(*steps, dim=0)
    assert float(cosine) == pytest.approx(1.0, abs=1e-12)


def test_adam_behind_the_preconditioner():
    x = torch.randn(200, 4, generator=generator(3))
    y = (x[:, 0] * x[:, 1] > 0).long()
    model, criterion = seeded(lambda: mlp(4, 16, 2), dtype=torch.float32), Categorical()
    precondition = Preconditioner(model, criterion, refresh=5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        precondition()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.3 * losses[0]


def test_the_preconditioner_resumes_and_refuses():
    model, criterion = network(), Gaussian()
    with pytest.raises(InvalidInputError, match="above 0"):
        Preconditioner(model, criterion, damping=0.0)
    precondition = Preconditioner(model, criterion)
    for _ in range(3):
        backward(model, criterion, X, Y)
        precondition()
    state = precondition.state_dict()
    other = network()
    resumed = Preconditioner(other, Gaussian())
    resumed.load_state_dict(state)
    backward(model, criterion, X, Y)
    precondition()
    backward(other, resumed._core.likelihood, X, Y)
    resumed()
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    backward(model, criterion, X, Y)
    held = model[0].bias.grad.clone()
    model[0].weight.grad[0, 0] = float("nan")
    with pytest.raises(NonFiniteError):
        precondition()
    assert torch.equal(model[0].bias.grad, held)
    precondition.remove()
    with pytest.raises(InvalidInputError, match="no batch"):
        precondition()
