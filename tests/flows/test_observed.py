import pytest
import torch

from natgrad.flows._methods.completion import observed
from natgrad.flows._methods.completion.observed import DenseResidual, SparseResidual, residual
from tests.helpers import assert_near, positions, randn


@pytest.mark.parametrize("kind", [DenseResidual, SparseResidual])
def test_residual_and_its_products(kind):
    shape, hidden = (9, 7), 3
    x, y = positions(*shape, 20, seed=1), randn(20, seed=2)
    left, right = randn(shape[0], hidden, seed=3), randn(hidden, shape[1], seed=4)
    whole = torch.zeros(shape, dtype=torch.float64)
    whole[x[:, 0], x[:, 1]] = y - (left @ right)[x[:, 0], x[:, 1]]
    mine = kind(x, y, shape)
    mine.update(left, right)
    of_left, of_right = torch.empty_like(left), torch.empty_like(right)
    mine.pull(left, right, of_left, of_right)
    assert_near(of_left, whole @ right.mT, 1e-13)
    assert_near(of_right, left.mT @ whole, 1e-13)
    assert_near(mine.times(right.mT), whole @ right.mT, 1e-13)
    assert_near(mine.transposed_times(left), whole.mT @ left, 1e-13)
    assert mine.sum_of_squares() == pytest.approx(float(whole.square().sum()), rel=1e-12)


def test_the_sparse_one_serves_large_matrices_with_few_entries(monkeypatch):
    x, y = positions(30, 30, 40, seed=1), randn(40, seed=2)
    assert isinstance(residual(x, y, (30, 30)), DenseResidual)
    monkeypatch.setattr(observed, "_SPARSE_FROM", 100)
    assert isinstance(residual(x, y, (30, 30)), SparseResidual)
    many = positions(30, 30, 500, seed=3)
    assert isinstance(residual(many, randn(500, seed=4), (30, 30)), DenseResidual)
