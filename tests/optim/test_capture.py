"""What the hooks see, what they leave alone, and what they refuse."""

import copy
import gc
import warnings
import weakref

import pytest
import torch
from torch import Tensor
from torch.nn import (
    BatchNorm1d,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    LeakyReLU,
    Linear,
    Module,
    Sequential,
    Tanh,
)
from torch.nn.utils.parametrizations import orthogonal

from natgrad import Categorical, Gaussian
from natgrad.errors import DtypeError, InvalidInputError, ShapeError, UnsupportedError
from natgrad.optim import (
    NGD,
    AdaptationWarning,
    EqualShare,
    Factors,
    Quadratic,
    UncoveredWarning,
)
from natgrad.optim._layers.coverage import cover
from tests.helpers import F64, assert_near, randn
from tests.optim.nets import (
    Scale,
    backward,
    conv_net,
    factors_of,
    images,
    mlp,
    seeded,
    train,
    weights_of,
)

X, Y = randn(8, 3, seed=1), randn(8, 2, seed=2)
CLASSES = torch.tensor([0, 1, 2, 1, 0, 2, 2, 1])
ALONE = Factors(memory=0, source="exact", exact_output=False)


def snapshot(state: object) -> object:
    """A state_dict with tensors as lists, to compare."""
    if isinstance(state, dict):
        return {key: snapshot(value) for key, value in state.items()}
    return state.tolist() if isinstance(state, Tensor) else state


@pytest.mark.filterwarnings("ignore::natgrad.optim.AdaptationWarning")
@pytest.mark.parametrize("options", [{}, {"method": "diagonal"}, {"reduction": "mean"}])
@pytest.mark.parametrize("build", [lambda: mlp(3, 4, 2), conv_net])
def test_gradients_are_exactly_those_of_pytorch(build, options):
    x = X if build is not conv_net else images(8)
    y = Y if build is not conv_net else randn(8, 3, seed=3)
    plain, watched = seeded(build), seeded(build)
    optimizer = NGD(watched, Gaussian(), **options)
    criterion = Gaussian() if options.get("reduction") else optimizer.likelihood
    backward(plain, Gaussian(), x, y)
    backward(watched, criterion, x, y)
    for a, b in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    held = [p.grad for p in watched.parameters()]
    values = [g.clone() for g in held]
    optimizer.step()
    for p, grad, value in zip(watched.parameters(), held, values, strict=True):
        assert p.grad is grad
        assert torch.equal(grad, value)


def test_evaluation_changes_nothing():
    ends = []
    for evaluate in (False, True):
        model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
        optimizer = NGD(model, criterion)
        for _ in range(4):
            train(optimizer, criterion, X, Y, 1)
            if evaluate:
                state = snapshot(optimizer.state_dict())
                model.eval()
                criterion(model(X[:3]), Y[:3]).backward()
                model.train()
                with torch.no_grad():
                    criterion(model(X[:3]), Y[:3])
                assert snapshot(optimizer.state_dict()) == state
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)


def test_a_loss_that_is_not_back_propagated_changes_nothing():
    ends = []
    for look in (False, True):
        model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
        # No sampling, so that looking draws no random numbers either.
        optimizer = NGD(model, criterion, factors=Factors(source="exact"))
        for _ in range(3):
            if look:
                criterion(model(X[:5]), Y[:5])  # training mode, gradients on
            train(optimizer, criterion, X, Y, 1)
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)


def test_another_model_with_the_same_criterion_is_ignored():
    ends = []
    for shared in (False, True):
        criterion = Gaussian()
        model, other = seeded(lambda: mlp(3, 4, 2)), seeded(lambda: mlp(3, 4, 2), seed=9)
        optimizer = NGD(model, criterion)
        for _ in range(3):
            optimizer.zero_grad()
            loss = criterion(model(X), Y)
            if shared:
                criterion(other(X[:4]), Y[:4]).backward()
            loss.backward()
            optimizer.step()
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)


def test_a_copy_of_the_model_is_ignored():
    ends = []
    for copied in (False, True):
        model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
        optimizer = NGD(model, criterion)
        train(optimizer, criterion, X, Y, 1)
        if copied:
            twin = copy.deepcopy(model)
            criterion(twin(X[:4]), Y[:4]).backward()
        train(optimizer, criterion, X, Y, 2)
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)


def test_hooks_are_removable_and_die_with_the_optimizer():
    model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    optimizer.remove()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not criterion._listeners
    gone = weakref.ref(NGD(model, criterion))
    gc.collect()
    assert gone() is None
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    assert not criterion._listeners


def in_place() -> Sequential:
    return Sequential(Linear(3, 4), LeakyReLU(0.3, inplace=True), Linear(4, 2))


def out_of_place() -> Sequential:
    return Sequential(Linear(3, 4), LeakyReLU(0.3), Linear(4, 2))


def test_in_place_activations_give_the_same_factors():
    found = []
    for build in (in_place, out_of_place):
        model, criterion = seeded(build), Gaussian()
        optimizer = NGD(model, criterion, factors=ALONE)
        train(optimizer, criterion, X, Y, 1)
        found.append(factors_of(optimizer))
    for name, pair in found[0].items():
        for a, b in zip(pair, found[1][name], strict=True):
            assert torch.equal(a, b)


class Twice(Module):
    """One linear layer used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = Linear(3, 3), Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.inner(torch.tanh(self.inner(x)))))


def test_a_layer_used_twice_sums_both_uses():
    model, criterion = seeded(Twice), Gaussian()
    optimizer = NGD(model, criterion, factors=ALONE)
    train(optimizer, criterion, X, Y, 1)
    model = seeded(Twice)
    h = torch.tanh(model.inner(X)).detach()
    rows = torch.cat([torch.cat([X, h]), torch.ones(16, 1, dtype=F64)], dim=1)
    assert_near(factors_of(optimizer)["inner"][0], rows.mT @ rows / 16, 1e-12)


def test_a_sequence_counts_every_position():
    x, y = randn(8, 5, 3, seed=4), randn(8, 5, 2, seed=5)
    model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
    optimizer = NGD(model, criterion, factors=ALONE)
    train(optimizer, criterion, x, y, 1)
    flat = torch.cat([x.reshape(-1, 3), torch.ones(40, 1, dtype=F64)], dim=1)
    inputs, _ = factors_of(optimizer)["0"]
    _, errors = factors_of(optimizer)["2"]
    assert_near(inputs, flat.mT @ flat / 40, 1e-12)
    # Five positions of one sample: their Fishers add up.
    assert_near(errors, 5 * torch.eye(2, dtype=F64), 1e-12)


def test_flattened_sequences_are_trained_too():
    x, y = randn(8, 5, 3, seed=4), torch.randint(0, 2, (40,))
    model, criterion = seeded(lambda: mlp(3, 4, 2)), Categorical()
    optimizer = NGD(model, criterion, step_length=Quadratic())
    losses = []
    for _ in range(12):
        loss = criterion(model(x).reshape(-1, 2), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    assert not optimizer.statistics.notes


def test_other_parameters_are_named_once_and_take_safe_gradient_steps():
    build = lambda: Sequential(Linear(3, 4), Scale(4), Linear(4, 2))  # noqa: E731
    model, criterion = seeded(build), Gaussian()
    with pytest.warns(UncoveredWarning, match=r"1\.weight .*Scale") as record:
        optimizer = NGD(model, criterion, step_length=EqualShare())
    assert len(record) == 1
    before = model[1].weight.detach().clone()
    backward(model, criterion, X, Y)
    g = model[1].weight.grad.clone()
    optimizer.step()
    trace = optimizer._core.preconditioner.plain["1.weight"].trace
    assert trace > 0
    # Two layers, and one for the rest.
    assert_near(before - model[1].weight, g / (trace + optimizer.damping.start) / 3, 1e-10)
    with pytest.raises(UnsupportedError, match="Scale"):
        NGD(model, criterion, strict=True)


def test_traces_of_other_parameters_are_those_of_the_fisher():
    """Averaged over many samples, against the exact sum over the root's columns."""
    build = lambda: Sequential(Linear(3, 4), Scale(4), Linear(4, 2))  # noqa: E731
    traces = []
    for options in (Factors(samples=4000), None):
        model, criterion = seeded(build), Gaussian()
        if options is None:
            outputs = model(X)
            trace = 0.0
            for n in range(8):
                for k in range(2):
                    g = torch.autograd.grad(outputs[n, k], model[1].weight, retain_graph=True)[0]
                    trace += float(g.square().sum()) / 8
            traces.append(trace)
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UncoveredWarning)
                optimizer = NGD(model, criterion, step_length=Quadratic(), factors=options)
            backward(model, criterion, X, Y)
            optimizer.step()
            traces.append(optimizer._core.preconditioner.plain["1.weight"].trace)
    assert traces[0] == pytest.approx(traces[1], rel=0.1)


class Behind(Module):
    """Reads the weight of a layer past its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.last = Linear(4, 4), Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.nn.functional.linear(x, self.inner.weight, self.inner.bias)
        return self.last(hidden.tanh())


def test_a_layer_used_behind_the_hooks_is_found_out():
    model, criterion, x = seeded(Behind), Gaussian(), randn(8, 4, seed=6)
    optimizer = NGD(model, criterion)
    with pytest.warns(UncoveredWarning, match=r"inner\.weight .*outside of its forward"):
        train(optimizer, criterion, x, Y, 1)
    losses = train(optimizer, criterion, x, Y, 12)
    assert losses[-1] < losses[0]
    assert "inner.weight" in optimizer._core.preconditioner.plain


def tied() -> Sequential:
    made = Sequential(Linear(3, 3), Tanh(), Linear(3, 3), Tanh(), Linear(3, 2))
    made[2].weight = made[0].weight
    return made


@pytest.mark.parametrize(
    ("build", "reason", "covered"),
    [
        (tied, "tied to another module", ["0", "4"]),
        (lambda: Sequential(torch.nn.LSTM(2, 4, proj_size=2), Linear(2, 2)), "projections", ["1"]),
        (lambda: Sequential(orthogonal(Linear(3, 2)), Linear(2, 2)), "computed from", ["1"]),
        (lambda: Sequential(Embedding(5, 3, sparse=True), Linear(3, 2)), "sparse", ["1"]),
        (lambda: Sequential(torch.nn.Bilinear(2, 2, 3), Linear(3, 2)), "Bilinear is not", ["1"]),
    ],
    ids=["tied", "lstm", "weight-norm", "sparse-embedding", "bilinear"],
)
def test_what_is_not_covered_is_said_with_a_reason(build, reason, covered):
    found = cover(build())
    assert list(found.layers) == covered
    assert all(reason in why or "not a supported" in why for why in found.reasons.values())
    assert any(reason in why for why in found.reasons.values())


def test_frozen_parameters_stay():
    model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
    model[0].bias.requires_grad_(False)
    model[2].weight.requires_grad_(False)
    model[2].bias.requires_grad_(False)
    before = weights_of(model)
    optimizer = NGD(model, criterion, strict=True)
    losses = train(optimizer, criterion, X, Y, 5)
    after = weights_of(model)
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [
        False,
        True,
        True,
        True,
    ]
    assert losses[-1] < losses[0]


class Unused(Module):
    """A layer that gets no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused, self.called = Linear(3, 2), Linear(3, 2), Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.called(x)
        return self.used(x)


def test_parameters_without_gradient_stay():
    model, criterion = seeded(Unused), Gaussian()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    train(NGD(model, criterion), criterion, X, Y, 3)
    for name, p in model.named_parameters():
        assert torch.equal(p, before[name]) == ("used." not in name or "unused" in name)


def test_dropout_and_batch_normalization_are_replayed():
    build = lambda: Sequential(Linear(3, 8), BatchNorm1d(8), Dropout(0.3), Linear(8, 2))  # noqa: E731
    model, criterion = seeded(build), Gaussian()
    model[1].num_batches_tracked.zero_()
    optimizer = NGD(model, criterion, step_length=Quadratic())
    random = torch.get_rng_state()
    torch.manual_seed(0)
    try:
        backward(model, criterion, X, Y)
        state, average = torch.get_rng_state(), model[1].running_mean.clone()
        optimizer.step()
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(model[1].running_mean, average)
        assert int(model[1].num_batches_tracked) == 1
        stats = optimizer.statistics
        assert stats.notes == []
        assert stats.ratio == pytest.approx(1, abs=0.5)
    finally:
        torch.set_rng_state(random)


@pytest.mark.filterwarnings("ignore::natgrad.optim.AdaptationWarning")
def test_a_model_that_cannot_be_replayed_says_so():
    class Noisy(Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.count = Linear(3, 2), 0.0

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1.0  # state that no buffer shows
            return self.inner(x) + self.count

    model, criterion = seeded(Noisy), Gaussian()
    optimizer = NGD(model, criterion, step_length=Quadratic())
    train(optimizer, criterion, X, Y, 1)
    assert "reproduce" in optimizer.statistics.notes[0]
    assert optimizer.statistics.ratio is None
    assert optimizer.statistics.share == 1.0


class Outputs(Module):
    """Returns a tuple or a dict."""

    def __init__(self, mapping: bool) -> None:
        super().__init__()
        self.inner, self.mapping = Linear(3, 2), mapping

    def forward(self, x: Tensor, *, shift: Tensor) -> object:
        out = self.inner(x) + shift
        return {"logits": out} if self.mapping else (out, None)


@pytest.mark.parametrize("mapping", [False, True])
def test_models_may_return_tuples_and_mappings_and_take_keywords(mapping):
    model, criterion = seeded(lambda: Outputs(mapping)), Gaussian()
    optimizer = NGD(model, criterion, step_length=Quadratic())
    out = model(X, shift=Y)
    loss = criterion(out["logits"] if mapping else out[0], Y)
    loss.backward()
    optimizer.step()
    assert optimizer.statistics.notes == []
    assert optimizer.statistics.ratio is not None


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_custom_loss_with_closure_equals_the_criterion(reduction):
    ends = []
    x = randn(8, 3, seed=7)
    for custom in (False, True):
        model = seeded(lambda: mlp(3, 5, 3))
        ours = Categorical(reduction=reduction)
        loss = CrossEntropyLoss(reduction=reduction) if custom else ours
        optimizer = NGD(model, Categorical(), reduction=reduction) if custom else NGD(model, ours)

        def closure(model=model, loss=loss, optimizer=optimizer) -> Tensor:
            optimizer.zero_grad()
            value = loss(model(x), CLASSES)
            value.backward()
            return value

        for _ in range(14):
            value = optimizer.step(closure)
        stats = optimizer.statistics
        assert stats.loss == pytest.approx(float(value.detach()) / (8 if reduction == "sum" else 1))
        ends.append((weights_of(model), stats.damping))
    assert ends[0][1] == pytest.approx(ends[1][1])
    for a, b in zip(ends[0][0], ends[1][0], strict=True):
        assert_near(a, b, 1e-6)


def test_a_custom_loss_without_closure_keeps_the_damping_and_says_so():
    model, loss = seeded(lambda: mlp(3, 5, 3)), CrossEntropyLoss()
    optimizer = NGD(model, Categorical(), step_length=Quadratic(), reduction="mean")

    def run() -> None:
        for _ in range(3):
            optimizer.zero_grad()
            loss(model(X), CLASSES).backward()
            optimizer.step()

    with pytest.warns(AdaptationWarning, match=r"natgrad\.optim\.Loss") as record:
        run()
    assert [found.filename for found in record] == [__file__]
    stats = optimizer.statistics
    assert stats.damping == optimizer.damping.start
    assert stats.loss is None
    assert any("closure" in note for note in stats.notes)


def test_a_closure_leaves_the_gradients_of_the_step():
    model, loss = seeded(lambda: mlp(3, 5, 3)), CrossEntropyLoss()
    optimizer = NGD(model, Categorical(), reduction="mean")
    truth = seeded(lambda: mlp(3, 5, 3))
    loss(truth(X), CLASSES).backward()

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(model(X), CLASSES)
        value.backward()
        return value

    optimizer.step(closure)
    for a, b in zip(model.parameters(), truth.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)


def test_a_step_without_a_batch_says_what_to_do():
    model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    with pytest.raises(InvalidInputError, match="criterion"):
        optimizer.step()
    model.eval()
    backward(model, criterion, X, Y)
    with pytest.raises(InvalidInputError, match="training mode"):
        optimizer.step()
    model.train()
    train(optimizer, criterion, X, Y, 1)


@pytest.mark.filterwarnings("ignore::natgrad.optim.AdaptationWarning")
def test_several_forwards_under_one_loss_need_their_outputs_held():
    model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
    optimizer = NGD(model, criterion, factors=ALONE)
    first, second = model(X[:3]), model(X[3:])
    criterion(torch.cat([first, second]), Y).backward()
    optimizer.step()
    rows = torch.cat([X, torch.ones(8, 1, dtype=F64)], dim=1)
    assert_near(factors_of(optimizer)["0"][0], rows.mT @ rows / 8, 1e-12)
    parts = [model(x) + 0 for x in (X[:3], X[3:])]
    with pytest.raises(ShapeError, match="hold their outputs"):
        criterion(torch.cat(parts), Y)


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        ((3, Gaussian()), {}, DtypeError),
        ((Linear(2, 1), torch.nn.MSELoss), {}, DtypeError),
        ((Linear(2, 1).requires_grad_(False), Gaussian()), {}, InvalidInputError),
        ((Linear(2, 1), Gaussian()), {"lr": 0.0}, InvalidInputError),
        ((Linear(2, 1), Gaussian()), {"refresh": 0}, InvalidInputError),
        ((Linear(2, 1), Gaussian()), {"method": "newton"}, InvalidInputError),
        ((Linear(2, 1), Gaussian()), {"solver": "qr"}, InvalidInputError),
        ((Linear(2, 1), Gaussian()), {"reduction": "none"}, InvalidInputError),
    ],
)
def test_bad_arguments(arguments, options, error):
    with pytest.raises(error):
        NGD(*arguments, **options)


@pytest.mark.parametrize("options", [{"source": "guessed"}, {"samples": 0}, {"memory": -1.0}])
def test_bad_factors(options):
    with pytest.raises(InvalidInputError):
        Factors(**options)


def test_the_warning_points_at_the_line_of_the_user():
    with pytest.warns(UncoveredWarning) as record:
        NGD(seeded(lambda: Sequential(Linear(3, 4), Scale(4), Linear(4, 2))), Gaussian())
    assert record[0].filename == __file__
