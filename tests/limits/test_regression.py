"""Least squares and basis pursuit."""

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from natgrad.errors import InvalidInputError, RankDeficientError
from natgrad.limits import basis_pursuit, least_squares
from tests.helpers import DTYPES, F64, assert_near, pinv, randn, with_spectrum

DESIGNS = {
    "tall": with_spectrum(12, 4, [3, 2, 1, 0.5], seed=1),
    "wide": with_spectrum(4, 12, [3, 2, 1, 0.5], seed=2),
    "tall-deficient": with_spectrum(12, 5, [3, 2, 1], seed=3),
    "wide-deficient": with_spectrum(5, 12, [3, 2, 1], seed=4),
}


@pytest.mark.parametrize("name", DESIGNS)
def test_shortest_solution_is_that_of_the_pseudo_inverse(name):
    x = DESIGNS[name]
    y = randn(len(x), seed=5)
    limit = least_squares(x, y)
    assert_near(limit.solution, pinv(x) @ y, 1e-10)
    gradient = (x.mT @ (x @ limit.solution - y)).norm() / (x.norm() * y.norm())
    assert float(gradient) == pytest.approx(limit.certificate, abs=1e-15)
    assert limit.certificate < 1e-12
    assert limit.unique == (name == "tall")


@pytest.mark.parametrize("name", DESIGNS)
def test_ridge_tends_to_it(name):
    x = DESIGNS[name]
    y = randn(len(x), seed=6)
    ridge = torch.linalg.solve(x.mT @ x + 1e-9 * torch.eye(x.shape[1], dtype=F64), x.mT @ y)
    assert_near(least_squares(x, y).solution, ridge, 1e-5)


def test_ordinary_refuses_a_deficient_rank():
    x = DESIGNS["tall"]
    y = randn(len(x), seed=7)
    assert_near(least_squares(x, y, "ordinary").solution, pinv(x) @ y, 1e-10)
    with pytest.raises(RankDeficientError, match="minimum_norm"):
        least_squares(DESIGNS["wide"], randn(4, seed=7), "ordinary")


def by_highs(x, y):
    d = x.shape[1]
    a = x.numpy()
    answer = linprog(np.ones(2 * d), A_eq=np.hstack([a, -a]), b_eq=y.numpy(), method="highs")
    assert answer.status == 0
    return torch.as_tensor(answer.x[:d] - answer.x[d:]), answer.fun


@pytest.mark.parametrize("name", DESIGNS)
@pytest.mark.parametrize("seed", range(3))
def test_basis_pursuit_agrees_with_highs_and_its_own_certificate(name, seed):
    x = DESIGNS[name]
    y = x @ randn(x.shape[1], seed=seed)
    limit = basis_pursuit(x, y)
    _, norm = by_highs(x, y)
    assert limit.value == pytest.approx(norm, rel=1e-8)
    assert limit.certificate < 1e-9
    assert_near(x @ limit.solution, y, 1e-9)
    assert float((x.mT @ limit.dual).abs().max()) <= 1 + 1e-12
    assert float(y @ limit.dual) == pytest.approx(float(limit.solution.abs().sum()), rel=1e-9)


def test_basis_pursuit_recovers_a_sparse_vector():
    x, truth = randn(40, 120, seed=8), torch.zeros(120, dtype=F64)
    truth[[3, 50, 77]] = torch.tensor([1.0, -2.0, 0.5], dtype=F64)
    limit = basis_pursuit(x, x @ truth)
    assert_near(limit.solution, truth, 1e-9)
    assert limit.basis.tolist() == [3, 50, 77]


@pytest.mark.parametrize("scale", [1e-7, 1e7])
def test_basis_pursuit_scales(scale):
    x, y = randn(5, 12, seed=9), randn(5, seed=10)
    assert_near(basis_pursuit(scale * x, y).solution * scale, basis_pursuit(x, y).solution, 1e-8)


def test_basis_pursuit_of_nothing_is_zero_and_of_the_impossible_refused():
    x = DESIGNS["tall"]
    assert not bool(basis_pursuit(x, torch.zeros(12, dtype=F64)).solution.any())
    with pytest.raises(InvalidInputError, match="least_squares"):
        basis_pursuit(x, randn(12, seed=11))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("limit", [least_squares, basis_pursuit])
def test_dtype_is_kept(limit, dtype):
    x, y = randn(4, 9, seed=1).to(dtype), randn(4, seed=2).to(dtype)
    assert limit(x, y).solution.dtype == dtype
