"""A model that changes behind the optimizer gets one sentence at the next step."""

import copy

import pytest
import torch
from torch.nn import Linear, Parameter, Sequential, Tanh
from torch.nn.utils import parametrizations, prune

from natgrad import Gaussian
from natgrad.errors import InvalidInputError
from natgrad.optim import NGD, Preconditioner, Quadratic, UncoveredWarning
from tests.helpers import assert_near, randn
from tests.optim.nets import backward, mlp, seeded, train, weights_of

X, Y = randn(8, 3, seed=1), randn(8, 2, seed=2)


def with_frozen():
    model = mlp(3, 6, 2)
    model[0].bias.requires_grad_(False)
    return model


def replace_layer(model):
    model[0] = Linear(3, 6).double()


def same_parameters_in_another_module(model):
    other = Linear(3, 6)
    other.weight, other.bias = model[0].weight, model[0].bias
    model[0] = other


def insert_layer(model):
    model.insert(1, Linear(6, 6).double())


def drop_layer(model):
    model[0] = Sequential()
    model[2] = Linear(3, 2).double()


def replace_parameter(model):
    model[0].weight = Parameter(torch.zeros(6, 3, dtype=torch.float64))


def reshape_parameters(model):
    model[0].weight.data, model[0].bias.data = randn(5, 3, seed=3), randn(5, seed=4)
    model[2].weight.data = randn(2, 5, seed=5)


def assign_weights(model):
    model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)


CHANGES = {
    "double": (lambda m: m.float(), "dtype of '0.weight' was torch.float64 and is torch.float32"),
    "half": (lambda m: m.half(), "dtype of '0.weight' was torch.float64 and is torch.float16"),
    "layer replaced": (replace_layer, "'0.weight' is another tensor"),
    "module replaced": (same_parameters_in_another_module, "layer '0' is another module"),
    "layer appended": (lambda m: m.append(Linear(2, 2).double()), "'3.weight', '3.bias' are new"),
    "layer inserted": (insert_layer, "'1.weight', '1.bias', '3.weight', '3.bias' are new and"),
    "layer removed": (drop_layer, "'0.weight', '0.bias' are gone"),
    "parameter replaced": (replace_parameter, "'0.weight' is another tensor"),
    "parameter reshaped": (reshape_parameters, r"shape of '0.weight' was \(6, 3\) and is \(5, 3\)"),
    "weights assigned": (assign_weights, "assign=True"),
    "parametrized": (lambda m: parametrizations.orthogonal(m[0]), "parametrizations.weight"),
    "weight norm": (lambda m: parametrizations.weight_norm(m[2]), "'2.weight' is gone"),
    "pruned": (lambda m: prune.l1_unstructured(m[0], "weight", 2), "'0.weight_orig' is new"),
    "a parameter more": (lambda m: m.register_parameter("a", Parameter(X[0])), "'a' is new"),
    "a parameter less": (lambda m: m[0].register_parameter("bias", None), "'0.bias' is gone"),
}


@pytest.mark.filterwarnings("ignore::natgrad.optim.UncoveredWarning")
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_model_is_named_at_the_next_step(name, steps):
    change, sentence = CHANGES[name]
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    train(optimizer, criterion, X, Y, steps)
    change(model)
    dtype = model[2].weight.dtype if hasattr(model[2], "weight") else X.dtype
    backward(model, criterion, X.to(dtype), Y.to(dtype))
    before = weights_of(model)
    with pytest.raises(InvalidInputError, match=f"has changed since .*{sentence}") as error:
        optimizer.step()
    assert type(error.value) is InvalidInputError
    assert all(map(torch.equal, before, weights_of(model)))
    optimizer.state_dict()  # what was is still to be saved
    optimizer.remove()
    if name != "half":
        fresh = NGD(model, criterion)
        losses = train(fresh, criterion, X.to(dtype), Y.to(dtype), 3)
        assert losses[-1] < losses[0]


def test_a_model_without_numbers_is_named():
    optimizer = NGD(seeded(lambda: mlp(3, 6, 2)), Gaussian())
    optimizer.model.to("meta")
    with pytest.raises(InvalidInputError, match=r"has changed since .*'0.weight'"):
        optimizer.step()


@pytest.mark.parametrize("options", [{}, {"step_length": Quadratic()}], ids=["learned", "measured"])
def test_a_layer_unfrozen_later_moves_with_its_block(options):
    """From the next step on, as if it had been trained from the beginning, with its own factors."""
    model, criterion = seeded(lambda: mlp(3, 6, 6, 2)), Gaussian()
    model[0].requires_grad_(False)
    model[2].bias.requires_grad_(False)
    optimizer = NGD(model, criterion, weight_average=2.0, **options)
    assert "0" not in optimizer._core.preconditioner.blocks
    train(optimizer, criterion, X, Y, 5)
    kept = optimizer._core.preconditioner.blocks["4"]
    model.requires_grad_(True)
    before = weights_of(model)
    train(optimizer, criterion, X, Y, 1)
    assert optimizer.statistics.refreshed
    for a, b in zip(before, weights_of(model), strict=True):
        assert not torch.equal(a, b)
    blocks = optimizer._core.preconditioner.blocks
    assert blocks["4"] is kept
    rows = torch.cat([X, X.new_ones(len(X), 1)], 1)
    inputs = blocks["0"].inputs.matrix.tril()
    assert_near(inputs, (rows.mT @ rows / len(X)).tril(), 1e-10)
    assert blocks["2"].layer.shape == (6, 7)  # with its bias now
    losses = train(optimizer, criterion, X, Y, 8)
    assert losses[-1] < losses[0]
    with optimizer.averaged():
        pass
    fresh = NGD(model, criterion, weight_average=2.0, **options)
    fresh.load_state_dict(optimizer.state_dict())


def test_a_frozen_layer_stands_still_and_its_group_waits():
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    model[0].requires_grad_(False)
    groups = [{"params": model[0].parameters(), "lr": 0.5}]
    optimizer = NGD(model, criterion, groups=groups)
    train(optimizer, criterion, X, Y, 2)
    model[0].requires_grad_(True)
    model[2].weight.requires_grad_(False)  # its bias moves on, without a block
    before = weights_of(model)
    with pytest.warns(UncoveredWarning, match=r"2\.bias"):
        train(optimizer, criterion, X, Y, 1)
    moved = [not torch.equal(a, b) for a, b in zip(before, weights_of(model), strict=True)]
    assert moved == [True, True, False, True]
    assert [len(group["params"]) for group in optimizer.param_groups] == [2, 2]


def test_what_is_undone_in_time_does_not_matter():
    """As where another network's loss is to leave this one alone."""
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    optimizer = NGD(model, criterion)
    model.requires_grad_(False)
    model(X)
    model.requires_grad_(True)
    model[1] = Tanh()  # without parameters: nothing that the optimizer follows
    losses = train(optimizer, criterion, X, Y, 3)
    assert losses[-1] < losses[0]


def test_the_preconditioner_notices_too():
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Gaussian()
    precondition = Preconditioner(model, criterion)
    model.append(Linear(2, 2).double())
    backward(model, criterion, X, Y)
    with pytest.raises(InvalidInputError, match=r"'3\.weight', '3\.bias' are new"):
        precondition()
