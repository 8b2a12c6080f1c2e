"""Batches of one sample: vectors stand for the direction wherever the gradient is their product."""

import pytest
import torch
from torch.nn import Linear, Sequential, Tanh

from natgrad import Gaussian
from natgrad.errors import InvalidInputError
from natgrad.experiments.race.problems import load
from natgrad.optim import NGD, EqualShare, Quadratic
from natgrad.optim._steps.direction import OuterPart
from tests.helpers import assert_near, randn
from tests.optim.nets import backward, mlp, seeded, weights_of

X, Y = randn(10, 3, seed=1), randn(10, 2, seed=2)


# Lengths of the quadratic model are difference quotients, with half of the digits behind √eps.
@pytest.mark.parametrize(("length", "rtol"), [(EqualShare(), 1e-12), (Quadratic(), 1e-9)])
@pytest.mark.parametrize("bias", [False, True])
def test_batch_size_one_takes_the_rank_one_form(length, rtol, bias):
    """The same numbers as the dense products, through vectors."""
    criterion, x, y = Gaussian(), randn(1, 4, seed=24), randn(1, 2, seed=25)
    models = [seeded(lambda: mlp(4, 6, 2, bias=bias)) for _ in range(2)]
    for model, dense in zip(models, (False, True), strict=True):
        optimizer = NGD(model, criterion, step_length=length)
        for _ in range(3):
            backward(model, criterion, x, y)
            if dense:
                forget_vectors(optimizer)
            optimizer.step()
    for a, b in zip(*map(weights_of, models), strict=True):
        assert_near(a, b, rtol)


def test_published_batches_of_one_are_equation_20_without_a_matrix():
    criterion, x, y = Gaussian(), randn(1, 4, seed=24), randn(1, 2, seed=25)
    model = seeded(lambda: mlp(4, 6, 2))
    optimizer = NGD.published(model, criterion, damping=0.09)
    backward(model, criterion, x, y)
    before = [w.clone() for w in weights_of(model)]
    e, a = model[0].bias.grad.clone(), torch.cat([x[0], x.new_ones(1)])
    optimizer.step()
    block = optimizer._core.preconditioner.blocks["0"]
    assert (block.left.used, block.right.used) == ("row", "row")
    sampled = block.errors.rows[0]
    u = (e - sampled * (sampled @ e) / (0.3 + sampled @ sampled)) / 0.3
    v = a / (0.3 + a @ a)
    assert_near(weights_of(model)[0] - before[0], -0.5 * torch.outer(u, v[:4]), 1e-12)


@pytest.mark.parametrize("bias", [False, True])
def test_outputs_along_vectors_are_those_of_moved_weights(bias):
    """And the weights are not touched, whatever hooks of its own the layer has."""
    layer = seeded(lambda: Linear(3, 2, bias=bias))
    layer.register_forward_hook(lambda module, inputs, output: output.square())
    u, v = randn(2, seed=3), randn(3 + bias, seed=4)
    part = OuterPart(layer, list(layer.parameters()), u, v, slope=1.0)
    before = weights_of(layer)
    with part.nudged(0.3):
        found = layer(X)
    assert all(torch.equal(a, b) for a, b in zip(weights_of(layer), before, strict=True))
    assert part.disturbed == []
    with torch.no_grad():
        part.move(0.3)
        assert_near(found, layer(X), 1e-14)


def test_a_large_gradient_of_one_sample_is_still_known_for_an_outer_product():
    """Norms of millions of entries in single precision are off in the fourth digit."""
    model, criterion = torch.nn.Linear(2000, 2000), Gaussian()
    optimizer = NGD(model, criterion)
    source = torch.Generator().manual_seed(30)
    x, y = (torch.rand(1, 2000, generator=source) for _ in range(2))
    optimizer.step(lambda: backward(model, criterion, x, y))
    backward(model, criterion, x, y)
    core = optimizer._core
    batch = core.capture.batch(core.world)
    norms, _ = batch.gradient_norms(list(model.parameters()), loss=None, step=2)
    (part,) = core.preconditioner.direction(batch, norms).parts
    assert isinstance(part, OuterPart)


def forget_vectors(optimizer: NGD) -> None:
    """Have the next step take dense products."""
    for call, _ in optimizer._core.capture._calls:
        call.single = {}


@pytest.mark.parametrize("bias", [False, True])
def test_a_single_sample_whose_gradient_was_clipped_entry_by_entry_is_right(bias):
    """Then the gradient is no outer product any more, and the dense products are taken."""
    ends = []
    for dense in (False, True):
        model, criterion = seeded(lambda: mlp(3, 5, 2, bias=bias)), Gaussian()
        optimizer = NGD(model, criterion)
        backward(model, criterion, X[:1], Y[:1])
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.05)
        if dense:
            forget_vectors(optimizer)
        optimizer.step()
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert_near(a, b, 1e-9)


def test_single_data_with_groups_of_their_own():
    """Vectors stand for the direction until weight and bias go at different rates."""
    ends = []
    for dense in (False, True):
        model = seeded(lambda: Sequential(Linear(3, 4), Tanh(), Linear(4, 2)))
        criterion, biases = Gaussian(), [model[0].bias, model[2].bias]
        optimizer = NGD(model, criterion, groups=[{"params": biases, "lr": 0.1}])
        backward(model, criterion, X[:1], Y[:1])
        if dense:
            forget_vectors(optimizer)
        optimizer.step()
        ends.append(weights_of(model))
    for a, b in zip(*ends, strict=True):
        assert_near(a, b, 1e-9)


@pytest.mark.parametrize("seed", [102, 103])
def test_single_data_do_not_undo_each_other(seed):
    """A table, one row at a time; full lengths end hundreds of times above where they begin."""
    pytest.importorskip("sklearn")
    problem = load("table")
    model, criterion = problem.make(seed), Gaussian()
    optimizer = NGD(model, criterion)
    order = torch.randperm(len(problem.train), generator=torch.Generator().manual_seed(seed))
    for rows in order.split(1):
        backward(model, criterion, *problem.batch(problem.train, rows))
        optimizer.step()
    assert problem.score(model, problem.validation)[0] < 0.65  # the outcome's own variance is one


class Attending(torch.nn.Module):
    """Attention, whose output layer is read past its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.inward, self.out = Linear(4, 8), Linear(8, 2)
        self.attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.inward(input=x).tanh()
        return self.out(self.attention(h, h, h, need_weights=False)[0][:, 0])


def test_lengths_see_layers_that_are_read_past_their_forward():
    lengths = []
    for dense in (False, True):
        model, criterion = seeded(Attending), Gaussian()
        optimizer = NGD(model, criterion, damping=0.1)
        for k in range(3):
            backward(model, criterion, randn(1, 1, 4, seed=k), 10 * randn(1, 2, seed=k + 9))
            if dense:
                forget_vectors(optimizer)
            optimizer.step()
            lengths.append(optimizer.statistics.length)
    assert lengths[:3] == pytest.approx(lengths[3:], rel=1e-5)


@pytest.mark.parametrize("n", [1, 6])
def test_a_bias_without_gradient_stays(n):
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    backward(model, criterion, X[:n], Y[:n])
    model[0].bias.grad = None
    before = weights_of(model)
    optimizer.step()
    after = weights_of(model)
    assert torch.equal(after[1], before[1])
    assert not torch.equal(after[0], before[0])


def test_steps_without_gradients_are_refused_with_a_sentence():
    model, criterion = seeded(lambda: mlp(3, 5, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    backward(model, criterion, X, Y)
    optimizer.zero_grad()
    with pytest.raises(InvalidInputError, match="found no gradient"):
        optimizer.step()
