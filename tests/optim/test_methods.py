"""The methods for comparison: whitening, diagonal, conjugate gradients."""

import math

import pytest
import torch
from torch.nn import Linear

from natgrad import Categorical, Gaussian, Network, reference
from natgrad.errors import UnsupportedError
from natgrad.optim import NGD, EqualShare, Factors
from natgrad.optim._curvature.conjugate_gradients import solve
from tests.helpers import F64, assert_near, generator, randn
from tests.optim.nets import (
    backward,
    conv_net,
    factors_of,
    images,
    joint,
    mlp,
    seeded,
    train,
    weights_of,
)

X = randn(9, 3, seed=1)
Y = torch.randint(0, 3, (9,), generator=generator(2))


def start(method: str, **options):  # type: ignore[no-untyped-def]
    """A classifier with gradients, its optimizer, and weights and gradients by name."""
    criterion, model = Categorical(), seeded(lambda: mlp(3, 5, 3))
    optimizer = NGD(model, criterion, method=method, **options)
    backward(model, criterion, X, Y)
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return model, optimizer, weights, {name: p.grad for name, p in model.named_parameters()}


def test_whitening_takes_inverse_square_roots():
    model, optimizer, before, g = start(
        "whitening", damping=0.2, factors=Factors(memory=0), step_length=EqualShare()
    )
    optimizer.step()
    after = {name: p.detach() for name, p in model.named_parameters()}
    for name, (inputs, errors) in factors_of(optimizer).items():
        a, s = inputs.diagonal().mean(), errors.diagonal().mean()
        ridge_in, ridge_out = math.sqrt(0.2) * (a / s).sqrt(), math.sqrt(0.2) * (s / a).sqrt()

        def root(matrix, ridge):  # type: ignore[no-untyped-def]
            values, vectors = torch.linalg.eigh(matrix)
            return (vectors / (values + ridge).sqrt()) @ vectors.mT

        expected = -0.5 * root(errors, ridge_out) @ joint(g, name) @ root(inputs, ridge_in)
        assert_near(joint(after, name) - joint(before, name), expected, 1e-10)


def test_the_diagonal_is_that_of_the_dense_fisher():
    model, optimizer, before, g = start(
        "diagonal",
        damping=0.2,
        factors=Factors(memory=0, source="exact"),
        step_length=EqualShare(),
    )
    network = Network(seeded(lambda: mlp(3, 5, 3)))
    params = network.init()
    fisher = reference.fisher(Categorical(), network, params, X).diagonal()
    optimizer.step()
    scale = reference.unflatten(fisher, params)
    for name, p in model.named_parameters():
        assert_near(p - before[name], -0.5 * g[name] / (scale[name] + 0.2), 1e-12)


def test_conjugate_gradients_solve_the_dense_system():
    model, optimizer, before, _ = start("conjugate_gradients", damping=0.2)
    optimizer._core.preconditioner.iterations, optimizer._core.preconditioner.tolerance = 200, 1e-12
    network = Network(seeded(lambda: mlp(3, 5, 3)))
    truth = reference.natural(Categorical(), network, network.init(), (X, Y), damping=0.2)
    optimizer.step()
    assert optimizer.statistics.share == pytest.approx(1.0, rel=1e-5)
    for name, p in model.named_parameters():
        assert_near(p - before[name], truth[name], 1e-5)


def test_conjugate_gradients_stop_where_they_are_told():
    a = torch.diag(torch.tensor([1.0, 2.0, 3.0], dtype=F64))
    b, calls = [torch.ones(3, dtype=F64)], []

    def product(v):  # type: ignore[no-untyped-def]
        calls.append(1)
        return [a @ v[0]]

    assert_near(solve(product, b, 10, 1e-12)[0], torch.linalg.solve(a, b[0]), 1e-12)
    assert len(calls) == 3
    calls.clear()
    solve(product, b, 1, 0.0)
    assert len(calls) == 1
    assert torch.equal(solve(product, [0 * b[0]], 5, 1e-3)[0], 0 * b[0])


def test_conjugate_gradients_need_one_batch_from_model_to_criterion():
    model, criterion = seeded(lambda: mlp(3, 5, 3)), Categorical()
    optimizer = NGD(model, criterion, method="conjugate_gradients")
    for x, y in zip(X.chunk(3), Y.chunk(3), strict=True):
        criterion(model(x), y).backward()
    with pytest.raises(UnsupportedError, match="one batch"):
        optimizer.step()


@pytest.mark.parametrize("method", ["whitening", "diagonal", "conjugate_gradients"])
def test_every_method_trains_linear_and_convolutional_networks(method):
    for build, x in ((lambda: mlp(3, 5, 3), X), (conv_net, images(9))):
        model, criterion = seeded(build), Categorical()
        losses = train(NGD(model, criterion, method=method), criterion, x, Y, 30)
        assert losses[-1] < 0.5 * losses[0]


def test_conjugate_gradients_cover_every_layer():
    model = seeded(lambda: torch.nn.Sequential(Linear(3, 4), torch.nn.LayerNorm(4), Linear(4, 2)))
    before, criterion = weights_of(model), Gaussian()
    optimizer = NGD(model, criterion, method="conjugate_gradients", strict=True)
    train(optimizer, criterion, X, randn(9, 2, seed=3), 3)
    assert not any(torch.equal(a, b) for a, b in zip(before, weights_of(model), strict=True))
