"""The dense reference against an outside library and against closed forms."""

import math
from types import SimpleNamespace

import pytest
import torch
from curvlinops import GGNLinearOperator
from torch import nn

from natgrad import Bernoulli, Categorical, Diagonal, Direct, Gaussian, Network, reference
from natgrad.directions._fisher import Fisher
from tests.helpers import F64, assert_near, kron, mlp, module, randn, signs

REDUCTIONS = ["mean", "sum"]
reductions = pytest.mark.parametrize("reduction", REDUCTIONS)


# curvlinops: the generalized Gauss–Newton matrix, which is the Fisher for these losses.


def ggn(inner, loss, x, y):
    """The dense matrix; curvlinops orders parameters as the module does, row-major."""
    operator = GGNLinearOperator(
        inner, loss, [p for p in inner.parameters() if p.requires_grad], [(x, y)]
    )
    size = operator.shape[1]
    return (operator @ torch.eye(size, dtype=F64)).detach()


def outside(kind: str, reduction: str, outputs: int, n: int):
    """A likelihood of ours, torch's loss, labels, and the factor between the two."""
    if kind == "mse":  # no ½, and "mean" also averages over outputs
        factor = 0.5 * (outputs if reduction == "mean" else 1)
        return Gaussian(reduction=reduction), nn.MSELoss(reduction=reduction), factor
    if kind == "cross-entropy":
        return Categorical(reduction=reduction), nn.CrossEntropyLoss(reduction=reduction), 1.0
    factor = outputs if reduction == "mean" else 1.0
    return (
        Bernoulli(zero_one=True, reduction=reduction),
        nn.BCEWithLogitsLoss(reduction=reduction),
        factor,
    )


def labels(kind: str, n: int, outputs: int):
    if kind == "mse":
        return randn(n, outputs, seed=4)
    if kind == "cross-entropy":
        return torch.arange(n) % outputs
    return (signs(n * outputs, seed=5).reshape(n, outputs) + 1) / 2


NETS = {
    "mlp": lambda: mlp(3),
    "relu": lambda: nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)),
    "deep": lambda: nn.Sequential(
        nn.Linear(3, 3), nn.Sigmoid(), nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False)
    ),
}


@reductions
@pytest.mark.parametrize("kind", ["mse", "cross-entropy", "bce"])
@pytest.mark.parametrize("name", NETS)
def test_fisher_is_the_gauss_newton_matrix_of_curvlinops(name, kind, reduction):
    inner = module(NETS[name])
    x = randn(6, 3, seed=3)
    outputs = inner(x).shape[1]
    y = labels(kind, 6, outputs)
    likelihood, loss, factor = outside(kind, reduction, outputs, 6)
    expected = factor * ggn(inner, loss, x, y)
    network = Network(inner)
    params = network.init()
    assert_near(reference.fisher(likelihood, network, params, x), expected, 1e-11)
    assert_near(Fisher(likelihood, network, params, x).dense(), expected, 1e-11)
    output = inner(x).detach()
    assert float(likelihood(output, y)) == pytest.approx(factor * float(loss(output, y)))


# Closed forms.


@reductions
def test_fisher_of_logistic_regression(reduction):
    """xᵀ diag φ(s)φ(−s) x, [KMH21] Lemma 1."""
    x, beta = randn(7, 3, seed=1), randn(3, seed=2)
    s = x @ beta
    weight = torch.sigmoid(s) * torch.sigmoid(-s)
    expected = x.mT @ (weight[:, None] * x)
    expected = expected / 7 if reduction == "mean" else expected
    for likelihood in (
        Bernoulli(reduction=reduction),
        Bernoulli(reduction=reduction, zero_one=True),
    ):
        assert_near(reference.fisher(likelihood, Direct(), beta, x), expected, 1e-13)


@reductions
def test_fisher_of_a_diagonal_network_of_depth_two(reduction):
    w, x = randn(2, 3, seed=1), randn(5, 3, seed=2)
    j = torch.cat([x * w[1], x * w[0]], dim=1)
    expected = j.mT @ j / (5 if reduction == "mean" else 1)
    assert_near(reference.jacobian(Diagonal(2), w, x)[:, 0], j, 1e-14)
    assert_near(reference.fisher(Gaussian(reduction=reduction), Diagonal(2), w, x), expected, 1e-13)


def test_fisher_of_two_logits_is_that_of_their_difference():
    """Softmax of two logits is a Bernoulli on the difference."""
    x, w = randn(4, 3, seed=1), randn(3, 2, seed=2)
    two = reference.fisher(Categorical(reduction="sum"), Direct(), w, x)
    one = reference.fisher(Bernoulli(reduction="sum"), Direct(), w[:, 1] - w[:, 0], x)
    contrast = torch.tensor([[1.0, -1.0], [-1.0, 1.0]], dtype=F64)
    assert_near(two, kron(one, contrast), 1e-12)


def test_fisher_with_full_covariance():
    covariance = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=F64)
    x, w = randn(4, 3, seed=1), randn(3, 2, seed=2)
    expected = kron(x.mT @ x / 4, torch.linalg.inv(covariance))
    assert_near(reference.fisher(Gaussian(covariance), Direct(), w, x), expected, 1e-12)


def test_factor_replaces_the_reduction():
    x, beta = randn(4, 3, seed=1), randn(3, seed=2)
    whole = reference.fisher(Gaussian(reduction="sum"), Direct(), beta, x)
    for reduction in REDUCTIONS:
        got = reference.fisher(Gaussian(reduction=reduction), Direct(), beta, x, factor=0.125)
        assert_near(got, 0.125 * whole, 1e-14)


@reductions
def test_gradient_of_linear_regression(reduction):
    x, beta, y = randn(6, 3, seed=1), randn(3, seed=2), randn(6, seed=3)
    expected = x.mT @ (x @ beta - y) / (6 if reduction == "mean" else 1)
    got = reference.gradient(Gaussian(reduction=reduction), Direct(), beta, (x, y))
    assert_near(got, expected, 1e-13)


def test_gradient_by_finite_differences():
    w, x, y = randn(3, 2, seed=1), randn(5, 2, seed=2), signs(5, seed=3)
    likelihood, model = Bernoulli(), Diagonal(3)
    got = reference.gradient(likelihood, model, w, (x, y))
    step = 1e-6
    for i in range(6):
        e = torch.zeros(6, dtype=F64)
        e[i] = step
        up, down = (likelihood(model.predict(w + s * e.reshape(3, 2), x), y) for s in (1, -1))
        assert float(got[i]) == pytest.approx(float(up - down) / (2 * step), abs=1e-8)


@reductions
def test_natural_direction_of_linear_regression_is_the_way_to_the_solution(reduction):
    x, beta, y = randn(6, 3, seed=1), randn(3, seed=2), randn(6, seed=3)
    solution = torch.linalg.lstsq(x, y[:, None], driver="gelsd").solution[:, 0]
    got = reference.natural(Gaussian(reduction=reduction), Direct(), beta, (x, y))
    assert_near(got, solution - beta, 1e-11)


def test_natural_direction_interpolates_and_is_shortest_when_over_parametrized():
    x, y = randn(2, 4, seed=1), randn(2, seed=2)
    got = reference.natural(Gaussian(), Direct(), torch.zeros(4, dtype=F64), (x, y))
    assert_near(x @ got, y, 1e-11)
    assert_near(got, x.mT @ torch.linalg.solve(x @ x.mT, y), 1e-11)


@reductions
def test_damping_is_added_to_the_fisher_as_reduced(reduction):
    x, beta, y = randn(6, 3, seed=1), randn(3, seed=2), randn(6, seed=3)
    scale = 6 if reduction == "mean" else 1
    f, g = x.mT @ x / scale, x.mT @ (x @ beta - y) / scale
    expected = -torch.linalg.solve(f + 0.3 * torch.eye(3, dtype=F64), g)
    got = reference.natural(Gaussian(reduction=reduction), Direct(), beta, (x, y), damping=0.3)
    assert_near(got, expected, 1e-12)


def test_fisher_over_other_inputs():
    x, other, beta, y = randn(6, 3, seed=1), randn(9, 3, seed=4), randn(3, seed=2), signs(6, 3)
    f = reference.fisher(Bernoulli(), Direct(), beta, other)
    g = reference.gradient(Bernoulli(), Direct(), beta, (x, y))
    got = reference.natural(Bernoulli(), Direct(), beta, (x, y), fisher_x=other)
    assert_near(f @ got, -g, 1e-11)


def test_score_has_mean_zero_and_the_fisher_as_covariance_by_sampling():
    """An independent route: sampled labels, and the score −Σ y φ(−ys) x written out."""
    x, beta, draws = randn(3, 2, seed=1), randn(2, seed=2), 20000
    likelihood = Bernoulli(reduction="sum")
    s = x @ beta
    y = likelihood.sample(s.expand(draws, 3), generator=torch.Generator().manual_seed(0))
    scores = (-y * torch.sigmoid(-y * s)) @ x
    assert_near(scores[0], reference.gradient(likelihood, Direct(), beta, (x, y[0])), 1e-12)
    products = scores[:, :, None] * scores[:, None, :]
    error = products.std(0) / math.sqrt(draws)
    expected = reference.fisher(likelihood, Direct(), beta, x)
    assert bool(((products.mean(0) - expected).abs() <= 4 * error).all())
    assert bool((scores.mean(0).abs() <= 4 * scores.std(0) / math.sqrt(draws)).all())


def test_any_object_that_predicts_will_do():
    square = SimpleNamespace(predict=lambda params, x: x @ params["w"] ** 2)
    params, x = {"w": randn(3, seed=1)}, randn(4, 3, seed=2)
    assert_near(reference.jacobian(square, params, x)[:, 0], 2 * x * params["w"], 1e-14)
    v = reference.natural(Gaussian(), square, params, (x, randn(4, seed=3)))
    assert set(v) == {"w"}


def test_jacobian_has_one_row_an_output():
    network = Network(module(lambda: mlp(2)))
    j = reference.jacobian(network, network.init(), randn(4, 3, seed=1))
    assert j.shape == (4, 2, sum(t.numel() for t in network.init().values()))
