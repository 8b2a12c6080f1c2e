"""A state that does not fit is refused with one sentence, and changes nothing."""

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Embedding, Flatten, LayerNorm, Linear, Sequential, Tanh

from natgrad import Gaussian
from natgrad.errors import InvalidInputError
from natgrad.optim import NGD, Factors, Preconditioner, UncoveredWarning
from tests.helpers import randn
from tests.optim.nets import Scale, backward, linear_chain, mlp, seeded, weights_of

pytestmark = pytest.mark.filterwarnings("ignore::natgrad.optim.UncoveredWarning")

Path = tuple[Any, ...]
RATES = ("lr", "weight_decay", "params")
X, Y = randn(12, 3, seed=1), randn(12, 2, seed=2)
TOKENS = torch.arange(24).reshape(12, 2) % 5


def mixed():
    return Sequential(Linear(3, 6), Scale(6), LayerNorm(6), Linear(6, 2))


def words():
    return Sequential(Embedding(5, 3), Flatten(), BatchNorm1d(6), Tanh(), Linear(6, 2))


CASES: dict[str, tuple[Any, dict[str, Any], Tensor]] = {
    "default": (lambda: mlp(3, 6, 2), {}, X),
    "average": (mixed, {"weight_average": 6.0}, X),
    "tokens": (words, {}, TOKENS),
    "single": (lambda: mlp(3, 20, 2), {"factors": Factors(memory=0)}, X[:1]),
    "low-rank": (lambda: mlp(3, 6, 2), {"solver": "low_rank", "momentum": 0.0}, X),
    "diagonal": (lambda: mlp(3, 6, 2), {"method": "diagonal"}, X),
    "cg": (lambda: mlp(3, 6, 2), {"method": "conjugate_gradients"}, X),
    "propagated": (lambda: linear_chain(3, 4, 2), {"factors": Factors(source="propagated")}, X),
    "lean": (lambda: mlp(3, 6, 2), {"factors": Factors(memory=0, keep=False)}, X),
}


def started(name: str, steps: int = 2) -> NGD:
    build, options, x = CASES[name]
    optimizer = NGD(seeded(build), Gaussian(), **options)
    for _ in range(steps):
        step(optimizer, x)
    return optimizer


def step(optimizer: NGD, x: Tensor) -> None:
    backward(optimizer.model, optimizer.likelihood, x, Y[: len(x)])
    optimizer.step()


def nodes(state: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every entry of a nested state, with its path."""
    items = state.items() if isinstance(state, dict) else ()
    items = enumerate(state) if isinstance(state, list) else items
    for key, value in items:
        yield (*path, key), value
        yield from nodes(value, (*path, key))


def replaced(state: Any, path: Path, value: Any, *, drop: bool = False) -> Any:
    """A copy of a state, shallow but along the path, with one entry changed or dropped."""
    out = copy.copy(state)
    if len(path) > 1:
        out[path[0]] = replaced(out[path[0]], path[1:], value, drop=drop)
    elif drop:
        del out[path[0]]
    else:
        out[path[0]] = value
    return out


def garbage(value: Any) -> list[Any]:
    found = [
        None,
        "text",
        [],
        [1, "a"],
        {},
        {"a": {"b": [1]}},
        math.nan,
        math.inf,
        -1.5,
        1j,
        10**400,
        object(),
        True,
        torch.tensor(0.5),
        torch.zeros(3, 1, 7),
        torch.zeros(2, 2).to_sparse(),
    ]
    if isinstance(value, Tensor):
        found += [
            torch.full_like(value, 3) if not value.is_floating_point() else value * math.nan,
            value.to(torch.complex64),
            value.to("meta"),
            value.to(torch.int64),
            value[:-1],
            value[None],
            value.to_sparse(),
        ]
    return found


def same(a: Any, b: Any) -> bool:
    """Bit for bit, types included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        alike = (a.dtype, a.shape, a.device, a.layout) == (b.dtype, b.shape, b.device, b.layout)
        return alike and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def could_be(path: Path, value: Any, wrong: Any) -> bool:
    """Whether a replacement is a state like any other: a number for a number, nothing averaged."""
    if wrong is None:
        return value is None or path[-3:-1] == ("momentum", "values") or path[-1] == "trace"
    if "cuts" in path:
        return isinstance(wrong, (list, str))  # any list of positions and names
    if isinstance(wrong, Tensor) and path[-1] in ("lr", "weight_decay"):
        return wrong.ndim == 0  # torch takes tensors for rates
    plain = isinstance(wrong, (int, float)) and isinstance(value, (int, float))
    return type(wrong) is bool is type(value) or (plain and not isinstance(wrong, bool))


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_state_is_refused_and_nothing_is_loaded(name):
    optimizer, twin = started(name), started(name)
    held = copy.deepcopy(optimizer.state_dict())
    other = copy.deepcopy(started(name, steps=4).state_dict())
    refused = 0
    for path, value in list(nodes(other)):
        changes = [] if "cuts" in path[:-1] else [replaced(other, path, None, drop=True)]
        wrongs = [w for w in garbage(value) if not same(w, value)]
        changes += [replaced(other, path, w) for w in wrongs if not could_be(path, value, w)]
        if path[2:] and path[0] == "param_groups" and path[2] not in RATES:
            continue  # the entry of another torch or of a scheduler
        for wrong in changes:
            with pytest.raises(
                InvalidInputError, match=r"does not fit: .* nothing was loaded"
            ) as e:
                optimizer.load_state_dict(wrong)
            assert type(e.value) is InvalidInputError
            refused += 1
        assert same(optimizer.state_dict(), held), path
    assert refused > 150
    x = CASES[name][2]
    step(optimizer, x)
    step(twin, x)
    assert all(map(torch.equal, weights_of(optimizer.model), weights_of(twin.model)))
    assert same(optimizer.state_dict(), twin.state_dict())


OTHERS = {
    "wider": (lambda: mlp(3, 7, 2), {}),
    "deeper": (lambda: mlp(3, 6, 6, 2), {}),
    "shallower": (lambda: Sequential(Linear(3, 2)), {}),
    "no bias": (lambda: mlp(3, 6, 2, bias=False), {}),
    "other names": (lambda: Sequential(Tanh(), Linear(3, 6), Tanh(), Linear(6, 2)), {}),
    "transposed": (lambda: Sequential(Linear(3, 6), Linear(6, 2), Linear(2, 2)), {}),
    "momentum": (lambda: mlp(3, 6, 2), {"momentum": 0.0}),
    "average": (lambda: mlp(3, 6, 2), {"weight_average": None}),
    "whitening": (lambda: mlp(3, 6, 2), {"method": "whitening"}),
    "diagonal": (lambda: mlp(3, 6, 2), {"method": "diagonal"}),
    "cg": (lambda: mlp(3, 6, 2), {"method": "conjugate_gradients"}),
    "low-rank": (lambda: mlp(3, 6, 2), {"solver": "low_rank"}),
    "lean": (lambda: mlp(3, 6, 2), {"factors": Factors(memory=0, keep=False)}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_the_state_of_another_model_or_configuration_is_refused(name):
    build, options = OTHERS[name]
    stranger = NGD(seeded(build), Gaussian(), **options)
    step(stranger, X)
    optimizer, twin = started("default"), started("default")
    held = copy.deepcopy(optimizer.state_dict())
    with pytest.raises(InvalidInputError, match=r"does not fit: .* nothing was loaded"):
        optimizer.load_state_dict(stranger.state_dict())
    assert same(optimizer.state_dict(), held)
    step(optimizer, X)
    step(twin, X)
    assert all(map(torch.equal, weights_of(optimizer.model), weights_of(twin.model)))


@pytest.mark.parametrize("wrong", [None, 3, "text", [], {}, torch.zeros(2)])
def test_what_is_no_state_at_all_is_refused(wrong):
    optimizer, precondition = (
        kind(seeded(lambda: mlp(3, 6, 2)), Gaussian()) for kind in (NGD, Preconditioner)
    )
    for each in (optimizer, precondition):
        with pytest.raises(InvalidInputError, match="does not fit"):
            each.load_state_dict(wrong)


def test_a_preconditioner_refuses_a_damaged_state():
    def made(steps: int) -> Preconditioner:
        precondition = Preconditioner(seeded(lambda: mlp(3, 6, 2)), Gaussian())
        for _ in range(steps):
            backward(precondition._core.model, precondition._core.likelihood, X, Y)
            precondition()
        return precondition

    precondition, other = made(1), copy.deepcopy(made(3).state_dict())
    held = copy.deepcopy(precondition.state_dict())
    for path, value in list(nodes(other)):
        wrongs = [w for w in garbage(value) if not same(w, value) and not could_be(path, value, w)]
        for wrong in [replaced(other, path, w) for w in wrongs]:
            with pytest.raises(InvalidInputError, match="does not fit"):
                precondition.load_state_dict(wrong)
        assert same(precondition.state_dict(), held), path
    precondition.load_state_dict(other)
    assert same(precondition.state_dict(), other)


def test_a_layer_that_was_dropped_stays_dropped():
    """A layer whose weight is read past its forward loses its block, in a resumed run too."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = Linear(3, 6), Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.tanh(x @ self.first.weight.mT + self.first.bias))

    optimizer = NGD(seeded(Net), Gaussian())
    with pytest.warns(UncoveredWarning):
        step(optimizer, X)
    resumed = NGD(seeded(Net), Gaussian())
    resumed.load_state_dict(optimizer.state_dict())
    assert same(resumed.state_dict(), optimizer.state_dict())
    lost = replaced(optimizer.state_dict(), ("natural", "preconditioner", "plain"), {})
    with pytest.raises(InvalidInputError, match="lacks 'first'"):
        NGD(seeded(Net), Gaussian()).load_state_dict(lost)
