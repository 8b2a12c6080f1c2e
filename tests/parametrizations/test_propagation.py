import pytest
import torch

from natgrad import DeepLinear, Gaussian, natural, reference
from natgrad.parametrizations.propagation import (
    backward_covariances,
    errors_through_inverses,
    forward_covariances,
    input_root,
    layerwise_direction,
    rank_one_direction,
)
from tests.helpers import F64, assert_near, deep, integers, pinv, randn

WIDTHS = [(3, 3, 3, 3), (2, 4, 3), (4, 3, 2), (3, 1, 3), (3, 2)]
widths = pytest.mark.parametrize("w", WIDTHS, ids=str)
COVARIANCE = torch.diag(torch.tensor([0.5, 2.0, 1.5], dtype=F64))


def problem(w):
    """Factors, inputs, targets, activities of every layer and the precision of the outputs."""
    factors, x, y = deep(w, seed=sum(w)), randn(8, w[0], seed=1), randn(8, w[-1], seed=2)
    activities = [x]
    for m in factors:
        activities.append(activities[-1] @ m.mT)
    precision = torch.linalg.inv(COVARIANCE[: w[-1], : w[-1]])
    return factors, x, y, activities, precision


def back_propagated(factors, errors):
    """Errors at the output of every layer, by transposes."""
    out = [errors]
    for m in reversed(factors[1:]):
        out.append(out[-1] @ m)
    return out[::-1]


@widths
def test_forward_covariances_are_second_moments_of_activities(w):
    factors, x, _, activities, _ = problem(w)
    covariances = forward_covariances(factors, x.mT @ x / len(x))
    assert len(covariances) == len(factors)
    for covariance, a in zip(covariances, activities, strict=False):
        assert_near(covariance, a.mT @ a / len(a), 1e-13)


@widths
def test_backward_covariances_are_second_moments_of_errors(w):
    """Errors at the outputs drawn so that their second moment is exactly the precision."""
    factors, _, _, _, precision = problem(w)
    k = w[-1]
    errors = k**0.5 * torch.linalg.cholesky(precision).mT  # k rows, averaging to the precision
    covariances = backward_covariances(factors, precision)
    assert len(covariances) == len(factors)
    for covariance, e in zip(covariances, back_propagated(factors, errors), strict=True):
        assert_near(covariance, e.mT @ e / k, 1e-13)


def layerwise(w):
    factors, x, y, activities, precision = problem(w)
    errors = back_propagated(factors, (y - activities[-1]) @ precision)
    descent = [e.mT @ a / len(x) for e, a in zip(errors, activities, strict=False)]
    sides = (
        backward_covariances(factors, precision),
        forward_covariances(factors, x.mT @ x / len(x)),
    )
    return factors, (x, y), errors, activities, descent, *sides


@widths
def test_descent_is_minus_the_gradient(w):
    factors, batch, _, _, descent, *_ = layerwise(w)
    likelihood = Gaussian(COVARIANCE[: w[-1], : w[-1]])
    gradient = reference.gradient(likelihood, DeepLinear(w), factors, batch)
    assert_near(torch.cat([d.reshape(-1) for d in descent]), -gradient, 1e-12)


@widths
def test_layerwise_direction_is_equation_10(w):
    *_, descent, errors, inputs = layerwise(w)
    for got, g, e, b in zip(
        layerwise_direction(descent, errors, inputs), descent, errors, inputs, strict=True
    ):
        assert_near(got, pinv(e, 1e-11) @ g @ pinv(b, 1e-11) / len(descent), 1e-8)


def test_layerwise_direction_is_the_natural_gradient_where_products_are_invertible():
    w = (3, 3, 3, 3)
    factors, batch, *_, descent, errors, inputs = layerwise(w)
    got = layerwise_direction(descent, errors, inputs)
    likelihood = Gaussian(COVARIANCE)
    expected = natural(likelihood, DeepLinear(w), factors, batch, selection="equal_share")
    fisher = reference.fisher(likelihood, DeepLinear(w), factors, batch[0])
    gradient = reference.gradient(likelihood, DeepLinear(w), factors, batch)
    assert_near(fisher @ torch.cat([v.reshape(-1) for v in got]), -gradient, 1e-8)
    for a, b in zip(got, expected, strict=True):
        assert_near(a, b, 1e-8)


def test_cut_off_reaches_the_pseudo_inverses():
    g = torch.ones(2, 2, dtype=F64)
    small = torch.diag(torch.tensor([1.0, 1e-4], dtype=F64))
    (kept,) = layerwise_direction([g], [small], [torch.eye(2, dtype=F64)])
    (cut,) = layerwise_direction([g], [small], [torch.eye(2, dtype=F64)], rtol=1e-3)
    assert_near(kept, torch.tensor([[1.0, 1.0], [1e4, 1e4]], dtype=F64), 1e-12)
    assert_near(cut, torch.tensor([[1.0, 1.0], [0.0, 0.0]], dtype=F64), 1e-12)


def test_rank_one_updates_average_to_the_layerwise_direction():
    w = (3, 3, 3)
    factors, (x, _), errors, activities, descent, backward, forward = layerwise(w)
    expected = layerwise_direction(descent, backward, forward)
    for i in range(len(factors)):
        inverses = torch.linalg.inv(backward[i]), torch.linalg.inv(forward[i])
        pairs = [
            rank_one_direction(errors[i][n], activities[i][n], *inverses, len(factors))
            for n in range(len(x))
        ]
        mean = torch.stack([torch.outer(a, b) for a, b in pairs]).mean(0)
        assert_near(mean, expected[i], 1e-9)


def test_errors_through_inverses_are_errors_over_their_covariance():
    w = (3, 3, 3, 3)
    factors, (_, y), errors, activities, _, backward, _ = layerwise(w)
    sent = errors_through_inverses(factors, (y - activities[-1]).mT)
    for got, e, covariance in zip(sent, errors, backward, strict=True):
        assert_near(got, torch.linalg.solve(covariance, e.mT), 1e-8)


@pytest.mark.parametrize("w", [*WIDTHS, (2, 3, 4, 2), (3, 2, 4, 3)], ids=str)
def test_errors_go_back_through_the_pseudo_inverse_of_each_factor(w):
    factors, error = deep(w, seed=3), randn(w[-1], seed=4)
    expected = [error]
    for m in reversed(factors[1:]):
        expected.append(pinv(m, 1e-11) @ expected[-1])
    got = errors_through_inverses(factors, error)
    assert len(got) == len(factors)
    for a, b in zip(got, expected[::-1], strict=True):
        assert_near(a, b, 1e-9)


INPUTS = {
    "spanning": randn(7, 3, seed=1),
    "few": randn(2, 4, seed=2),
    "square": randn(3, 3, seed=3),
    "deficient": integers(6, 2, seed=4) @ integers(2, 4, seed=5),
    "one": randn(1, 3, seed=6),
    "zero": torch.zeros(4, 3, dtype=F64),
}


@pytest.mark.parametrize("name", INPUTS)
def test_input_root_factors_the_second_moment(name):
    x = INPUTS[name]
    s, q = input_root(x)
    rank = int(torch.linalg.matrix_rank(x))
    assert s.shape == (rank, rank)
    assert int(torch.linalg.matrix_rank(s)) == rank
    if q is None:
        assert rank == x.shape[1]
        q = torch.eye(x.shape[1], dtype=F64)
    assert_near(q.mT @ q, torch.eye(rank, dtype=F64), 1e-13)
    assert_near(q @ s @ s.mT @ q.mT, x.mT @ x / len(x), 1e-13)
