"""Directions of wide layers from the rows of a batch: those of the factors, only cheaper."""

import copy

import pytest
import torch
from torch.nn import Linear, ReLU, Sequential, Tanh

from natgrad.optim import NGD, Quadratic
from natgrad.optim._curvature import batch_side
from natgrad.optim._curvature.block import BlockDiagonal
from tests.helpers import for_each

N = 5


@pytest.fixture(autouse=True)
def small_layers(monkeypatch):
    """Use rows in small layers, too."""
    monkeypatch.setattr(batch_side, "_LARGE", 100)


def network(seed=3):
    torch.manual_seed(seed)
    layers = Linear(30, 40), ReLU(inplace=True), Linear(40, 50, bias=False), Tanh(), Linear(50, 3)
    return Sequential(*layers).double()


def batches(count, rows=N):
    generator = torch.Generator().manual_seed(7)
    x = torch.randn(count, rows, 30, generator=generator).double()
    return [(a, a[:, :3].sin()) for a in x]


def plain(model, criterion, x, y):
    criterion(model(x), y).backward()


def train(model, *, rows, body=plain, **options):
    """Return the names of the blocks that moved by rows."""
    criterion = torch.nn.MSELoss()
    optimizer, used = NGD(model, criterion, **options), set()
    side = optimizer._core.preconditioner.side
    if not rows:
        optimizer._core.preconditioner.side = None
    for x, y in batches(15):
        optimizer.zero_grad()
        body(model, criterion, x, y)
        used |= names_moved_by_rows(side, optimizer.step)
    return used


def names_moved_by_rows(side, step):
    found, inner = set(), side.direction

    def direction(block, total):
        moved = inner(block, total)
        found.add(block.layer.name)
        return moved

    side.direction = direction
    step()
    side.direction = inner
    return found


def assert_same(model, body=plain, **options):
    """Train with and without rows, compare weights; return the blocks that moved by rows."""
    other = copy.deepcopy(model)
    used = train(model, rows=True, body=body, **options)
    train(other, rows=False, body=body, **options)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)  # lengths are measured
    return used


def test_the_direction_is_that_of_dense_inverses_and_an_average_by_hand(monkeypatch):
    """Against (Λ̃ + γ̃)⁻¹ ((μW ḡ + g)/(μW + 1)) (Λ + γ)⁻¹ with ḡ, W from their definitions."""
    model, criterion = network(), torch.nn.MSELoss()
    optimizer = NGD(model, criterion, momentum=0.8, solver="cholesky")
    mean, weight, compared, seen = 0.0, 0.0, 0, []
    whole = BlockDiagonal.direction

    def direction(self, batch, norms):
        found = whole(self, batch, norms)
        seen[:] = [(p.name, [t.clone() for t in p.tensors], p.slope) for p in found.parts]
        return found

    monkeypatch.setattr(BlockDiagonal, "direction", direction)
    for x, y in batches(12):
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        g = torch.cat([model[0].weight.grad, model[0].bias.grad[:, None]], 1)
        optimizer.step()
        weight = 0.8 * weight + 1
        mean = mean + (g - mean) / weight
        ahead = (0.8 * weight * mean + g) / (0.8 * weight + 1)
        block = optimizer._core.preconditioner.blocks["0"]
        dense = []
        for factor, keeper in ((block.errors, block.left), (block.inputs, block.right)):
            lower = torch.tril(factor.matrix)
            eye = torch.eye(len(lower)).double()
            dense.append(lower + torch.tril(lower, -1).mT + keeper.wanted * eye)
        expected = torch.linalg.solve(dense[0], ahead) @ torch.linalg.inv(dense[1])
        (parts, slope), *_ = [found[1:] for found in seen if found[0] == "0"]
        torch.testing.assert_close(parts[0], expected[:, :-1], rtol=1e-8, atol=1e-11)
        torch.testing.assert_close(parts[1], expected[:, -1], rtol=1e-8, atol=1e-11)
        assert slope == pytest.approx(float((ahead * expected).sum()), rel=1e-8)
        compared += "0" in optimizer._core.preconditioner.side.kept
    assert compared == 12


def test_steps_are_those_of_the_factors():
    options = [{}, {"momentum": 0.0}, {"step_length": Quadratic()}, {"lr": 0.5}, {"refresh": 1}]
    for_each(options, lambda each: _same(plain, {"0", "2"}, **each))


def twice(model, criterion, x, y):
    (criterion(model(x), y) + criterion(model(2 * x), y)).backward()


def accumulated(model, criterion, x, y):
    for a, b in ((x[:3], y[:3]), (x[3:], y[3:])):
        criterion(model(a), b).backward()


def clipped(model, criterion, x, y):
    plain(model, criterion, x, y)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)


def entries_clipped(model, criterion, x, y):
    plain(model, criterion, x, y)
    torch.nn.utils.clip_grad_value_(model.parameters(), 1e-3)


def penalized(model, criterion, x, y):
    loss = criterion(model(x), y)
    (loss + 1e-6 * sum(p.square().sum() for p in model.parameters())).backward()


def changed_inputs(model, criterion, x, y):
    x = x.clone()
    plain(model, criterion, x, y)
    x.zero_()


def again(model, criterion, x, y):
    loss = criterion(model(x), y)
    loss.backward(retain_graph=True)
    loss.backward()


def test_gradients_that_are_not_the_product_of_rows_go_by_the_factors():
    both = {"0", "2"}
    cases = {
        twice: set(),
        accumulated: set(),
        clipped: both,
        entries_clipped: set(),
        penalized: set(),
        changed_inputs: {"2"},
        again: both,
    }
    for_each(cases.items(), lambda case: _same(*case))


def _same(body, expected, model=None, **options):
    assert assert_same(network() if model is None else model, body, **options) == expected


def test_a_resumed_run_goes_on_bit_for_bit():
    model, criterion = network(), torch.nn.MSELoss()
    optimizer = NGD(model, criterion)

    def go_on(model, optimizer, data):
        for x, y in data:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()

    first, rest = batches(13)[:9], batches(13)[9:]
    go_on(model, optimizer, first)
    saved, weights = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(model.state_dict())
    go_on(model, optimizer, rest)
    other = network()
    other.load_state_dict(weights)
    resumed = NGD(other, criterion)
    resumed.load_state_dict(saved)
    go_on(other, resumed, rest)
    assert all(map(torch.equal, model.parameters(), other.parameters()))


def test_attention_and_recurrent_layers_go_by_the_factors():
    """Their passes are found inside of a module, whose output is not theirs."""

    class Mixed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(30, 2, batch_first=True)
            self.lstm = torch.nn.LSTM(30, 30, batch_first=True)
            self.head = Linear(30, 3)

        def forward(self, x):
            x = x[:, None]
            return self.head(self.lstm(self.attention(x, x, x)[0])[0][:, 0])

    torch.manual_seed(1)
    _same(plain, {"head"} if batch_side.pays(_linear(30, 3), N) else set(), model=Mixed().double())


def _linear(n_in, n_out):
    return batch_side.LinearLayer("", Linear(n_in, n_out))


def test_more_rows_than_pay_are_not_recorded():
    assert batch_side.pays(_linear(30, 40), 5)
    assert not batch_side.pays(_linear(30, 40), 20)
