"""Checkpoints, refused steps, memory."""

import copy
import gc
import io

import pytest
import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, Sequential

from natgrad import Categorical, Gaussian
from natgrad.errors import InvalidInputError, NonFiniteError, UnsupportedError
from natgrad.optim import NGD, Adaptive, EqualShare, Factors
from tests.helpers import assert_near, generator, randn
from tests.optim.nets import backward, linear_chain, mlp, seeded, train, weights_of

X, Y = randn(40, 3, seed=1), randn(40, 2, seed=2)


def batches(steps: int, start: int = 0, size: int = 10):  # type: ignore[no-untyped-def]
    for k in range(start, start + steps):
        rows = torch.randint(0, len(X), (size,), generator=generator(k))
        yield X[rows], Y[rows]


def run(optimizer: NGD, criterion: Gaussian, steps: int, start: int = 0, size: int = 10) -> None:
    for x, y in batches(steps, start, size):
        train(optimizer, criterion, x, y, 1)


OPTIONS = {
    "default": {},
    "average": {"weight_average": 6.0, "refresh": 3},
    "short": {"state_dtype": torch.bfloat16},
    "low-rank": {"solver": "low_rank"},
    "whitening": {"method": "whitening"},
    "diagonal": {"method": "diagonal"},
    "cg": {"method": "conjugate_gradients"},
    "samples": {"factors": Factors(samples=2, memory=0)},
    "lean": {"factors": Factors(memory=0, keep=False)},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("stop", [3, 13])
def test_a_resumed_run_continues_bit_for_bit(name, stop):
    options, criterion = OPTIONS[name], Gaussian()
    whole = seeded(lambda: mlp(3, 6, 2))
    straight = NGD(whole, criterion, **options)
    run(straight, criterion, 20)
    first = seeded(lambda: mlp(3, 6, 2))
    optimizer = NGD(first, Gaussian(), **options)
    run(optimizer, optimizer.likelihood, stop)
    file = io.BytesIO()
    torch.save({"model": first.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second = seeded(lambda: mlp(3, 6, 2), seed=5)
    second.load_state_dict(saved["model"])
    resumed = NGD(second, criterion, **options)
    resumed.load_state_dict(saved["optimizer"])
    del optimizer
    run(resumed, criterion, 20 - stop, start=stop)
    for a, b in zip(weights_of(whole), weights_of(second), strict=True):
        assert torch.equal(a, b)
    assert resumed.statistics.damping == straight.statistics.damping
    ours, theirs = (o.state_dict()["natural"] for o in (resumed, straight))
    for key in ("steps", "since", "due", "fresh_share", "share_sum", "ruler"):
        assert ours[key] == theirs[key]
    if options.get("weight_average"):
        with straight.averaged(), resumed.averaged():
            for a, b in zip(weights_of(whole), weights_of(second), strict=True):
                assert torch.equal(a, b)


def test_a_resumed_linear_network_continues_bit_for_bit():
    options = {"factors": Factors(source="propagated", memory=100)}
    x, y = randn(30, 3, seed=3), randn(30, 3, seed=4)
    whole, criterion = linear_chain(3, 4, 3), Gaussian()
    optimizer = NGD(whole, criterion, **options)
    train(optimizer, criterion, x[:20], y[:20], 3)
    state, weights = optimizer.state_dict(), whole.state_dict()
    second = linear_chain(3, 4, 3, seed=7)
    second.load_state_dict(weights)
    resumed = NGD(second, Gaussian(), **options)
    resumed.load_state_dict(state)
    train(optimizer, criterion, x[10:], y[10:], 3)
    train(resumed, resumed.likelihood, x[10:], y[10:], 3)
    for a, b in zip(weights_of(whole), weights_of(second), strict=True):
        assert torch.equal(a, b)


def test_a_short_state_has_half_the_bytes_and_trains_alike():
    """The average of gradients is rounded to 8 bits; the last step always is, and is undone."""
    ends = {}
    for dtype in (None, torch.bfloat16):
        model, criterion = seeded(lambda: mlp(3, 6, 2)).float(), Gaussian()
        x, y = randn(40, 3, seed=8).float(), randn(40, 2, seed=9).float()
        start = criterion(model(x), y).item()
        optimizer = NGD(model, criterion, state_dtype=dtype)
        train(optimizer, criterion, x, y, 12)
        state = optimizer.state_dict()["natural"]
        held = state["momentum"]["values"].values()
        assert {t.dtype for t in held} == {dtype or torch.float32}
        assert {t.dtype for t in state["lengths"]["tensors"].values()} == {torch.bfloat16}
        ends[dtype] = criterion(model(x), y).item()
        before = weights_of(model)
        train(optimizer, criterion, x, y, 1)
        with torch.no_grad():
            optimizer._lengths.undo()
        for a, b in zip(weights_of(model), before, strict=True):
            assert_near(a, b, 1e-6)
    assert abs(ends[None] - ends[torch.bfloat16]) < 0.03 * (start - ends[None])


def test_the_state_is_keyed_by_module_name():
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    run(optimizer, criterion, 1)
    assert list(optimizer.state_dict()["natural"]["preconditioner"]["layers"]) == ["0", "2"]


def test_loading_a_state_copies_it():
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    run(optimizer, criterion, 2)
    resumed = NGD(seeded(lambda: mlp(3, 6, 2)), criterion)
    resumed.load_state_dict(optimizer.state_dict())
    before = resumed._core.preconditioner.blocks["0"].inputs.matrix.clone()
    optimizer._core.preconditioner.blocks["0"].inputs.matrix.zero_()
    assert torch.equal(resumed._core.preconditioner.blocks["0"].inputs.matrix, before)


def test_states_of_other_optimizers_are_refused():
    model = seeded(lambda: mlp(3, 6, 2))
    state = torch.optim.SGD(model.parameters()).state_dict()
    with pytest.raises(InvalidInputError, match="another optimizer"):
        NGD(model, Gaussian()).load_state_dict(state)


def test_a_second_group_is_refused():
    optimizer = NGD(seeded(lambda: mlp(3, 6, 2)), Gaussian())
    with pytest.raises(UnsupportedError, match="one model"):
        optimizer.add_param_group({"params": [torch.zeros(1, requires_grad=True)]})


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["inputs", "gradient"])
def test_a_step_that_is_not_finite_is_refused(bad, where):
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    run(optimizer, criterion, 2)
    before, state = weights_of(model), optimizer.state_dict()["natural"]["preconditioner"]
    held = {k: v["inputs"]["matrix"].clone() for k, v in state["layers"].items()}
    x = X[:10].clone()
    if where == "inputs":
        x[0, 0] = bad
    backward(model, criterion, x, Y[:10])
    if where == "gradient":
        model[0].weight.grad[0, 0] = bad
    with pytest.raises(NonFiniteError, match="untouched"):
        optimizer.step()
    for a, b in zip(before, weights_of(model), strict=True):
        assert torch.equal(a, b)
    for name, matrix in held.items():
        assert torch.equal(optimizer._core.preconditioner.blocks[name].inputs.matrix, matrix)
    run(optimizer, criterion, 2)  # and goes on with the next batch
    assert optimizer.statistics.step == 4


def test_a_classifier_with_logits_that_are_not_finite_is_refused():
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Categorical()
    optimizer = NGD(model, criterion)
    x = X[:10].clone()
    x[0, 0] = float("nan")
    backward(model, criterion, x, torch.zeros(10, dtype=torch.long))
    with pytest.raises(NonFiniteError):
        optimizer.step()


def live_tensors() -> int:
    gc.collect()
    return sum(1 for o in gc.get_objects() if issubclass(type(o), torch.Tensor))


@pytest.mark.slow
def test_ten_thousand_steps_leak_nothing():
    model = seeded(lambda: Sequential(Linear(2, 3), torch.nn.Tanh(), Linear(3, 1)))
    criterion, x, y = Gaussian(), randn(4, 2, seed=8), randn(4, 1, seed=9)
    optimizer = NGD(model, criterion)
    train(optimizer, criterion, x, y, 100)
    before = live_tensors()
    train(optimizer, criterion, x, y, 9900)
    assert live_tensors() <= before
    for _ in range(50):  # forward passes that are not used
        criterion(model(x), y)
    assert len(optimizer._core.capture._calls) <= 2


def test_weight_averages():
    model, criterion = seeded(lambda: mlp(3, 4, 2)), Gaussian()
    optimizer = NGD(model, criterion, weight_average=2.0, step_length=EqualShare())
    mean = weights_of(model)
    for k, (x, y) in enumerate(batches(5), start=1):
        train(optimizer, criterion, x, y, 1)
        mean = [a + (b - a) * 2 / (k + 2) for a, b in zip(mean, weights_of(model), strict=True)]
    last = weights_of(model)
    with optimizer.averaged():
        for a, b in zip(mean, weights_of(model), strict=True):
            torch.testing.assert_close(a, b)
    for a, b in zip(last, weights_of(model), strict=True):
        assert torch.equal(a, b)
    without = NGD(model, criterion, weight_average=None)
    with pytest.raises(InvalidInputError, match="weight_average"), without.averaged():
        pass


def test_forgetting_factors_halves_the_state_and_changes_nothing():
    ends, sizes = [], []
    for keep in (True, False):
        model, criterion = seeded(lambda: mlp(3, 6, 4, 2)), Gaussian()
        optimizer = NGD(model, criterion, factors=Factors(memory=0, keep=keep, exact_output=False))
        run(optimizer, criterion, 14)
        layers = optimizer.state_dict()["natural"]["preconditioner"]["layers"]
        held = [v["matrix"] for layer in layers.values() for k, v in layer.items() if k in FACTORS]
        made = [v["data"] for layer in layers.values() for k, v in layer.items() if k in INVERSES]
        tensors = [t for t in held if t is not None] + [data["matrix"] for data in made]
        sizes.append(sum(t.nbytes for t in tensors))
        ends.append(weights_of(model))
    assert sizes[1] == sizes[0] / 2
    for a, b in zip(*ends, strict=True):
        assert torch.equal(a, b)
    with pytest.raises(InvalidInputError, match="memory must be 0"):
        Factors(keep=False)


FACTORS, INVERSES = ("inputs", "errors"), ("left", "right")


def test_a_state_of_another_version_is_refused_with_a_sentence():
    optimizer = NGD(seeded(lambda: mlp(3, 6, 2)), Gaussian())
    run(optimizer, optimizer.likelihood, 2)
    state = optimizer.state_dict()
    del state["natural"]["share_sum"]
    fresh = NGD(seeded(lambda: mlp(3, 6, 2)), Gaussian())
    with pytest.raises(InvalidInputError, match=r"lacks 'share_sum'\. .* another version"):
        fresh.load_state_dict(state)
    run(fresh, fresh.likelihood, 1)
    assert fresh.statistics.step == 1


class Forked(Module):
    """A network one of whose layers sits out some batches."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = Linear(6, 8), Linear(8, 8), Linear(8, 2)
        self.skip = False

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(x))
        return self.last(hidden if self.skip else torch.tanh(self.second(hidden)))


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {
            "factors": Factors(memory=0, keep=False),
            "damping": Adaptive(start=1e-3, relative_floor=5.0),
            "refresh": 1,
        },
    ],
    ids=["default", "forgetful"],
)
def test_a_layer_that_sits_out_resumes_bit_for_bit(n, options):
    """Its factor, of few rows, is inverted again under another damping without being renewed."""
    criterion, ends = Gaussian(), []
    x, y = randn(9 * n, 6, seed=1).float(), randn(9 * n, 2, seed=2).float()
    for resumed in (False, True):
        torch.manual_seed(0)
        model = Forked()
        optimizer = NGD(model, criterion, **options)
        for k in range(9):
            model.skip = k in (1, 2, 5)
            if resumed and k in (1, 4, 6):
                state = optimizer.state_dict()
                optimizer.remove()
                optimizer = NGD(model, criterion, **options)
                optimizer.load_state_dict(state)
            rows = slice(k * n, (k + 1) * n)
            train(optimizer, criterion, x[rows], y[rows], 1)
        optimizer.remove()
        ends.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*ends, strict=True))


def test_running_averages_of_batch_normalization_follow_the_average_of_weights():
    """Those of the last step belong to other weights."""
    x, y, criterion = randn(30, 3, seed=1), randn(30, 2, seed=2), Gaussian()
    model = seeded(lambda: Sequential(Linear(3, 4), BatchNorm1d(4), Linear(4, 2)))
    optimizer = NGD(model, criterion, weight_average=2.0)
    norm, means = model[1], [model[1].running_mean.clone()]
    for _ in range(6):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()
        means.append(norm.running_mean.clone())
    average = means[0]
    for k, mean in enumerate(means[1:], 1):
        average = average + 2 / (k + 2) * (mean - average)
    with optimizer.averaged():
        assert_near(norm.running_mean, average, 1e-12)
        assert norm.num_batches_tracked == 6
    assert torch.equal(norm.running_mean, means[-1])
    fresh = NGD(seeded(lambda: copy.deepcopy(model)), criterion, weight_average=2.0)
    fresh.load_state_dict(optimizer.state_dict())
    with fresh.averaged():
        assert_near(fresh.model[1].running_mean, average, 1e-12)
