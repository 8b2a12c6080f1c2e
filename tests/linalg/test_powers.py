"""Powers of positive semi-definite matrices against dense inverses."""

import pytest
import torch

from natgrad.linalg._powers import damped_power, decomposed, from_eigen
from tests.helpers import F64, assert_near, pinv, randn


def semidefinite(n, rank, seed):
    x = randn(rank, n, seed=seed)
    return x.mT @ x / rank


def inverse(matrix, ridge):
    return torch.linalg.inv(matrix + ridge * torch.eye(len(matrix), dtype=matrix.dtype))


def test_the_lower_triangle_is_enough():
    matrix = semidefinite(6, 9, seed=2)
    lower = torch.tril(matrix) + torch.triu(randn(6, 6, seed=3), 1)
    assert_near(damped_power(lower, 0.1), inverse(matrix, 0.1), 1e-12)


def test_pseudo_inverses_and_roots():
    matrix = semidefinite(6, 3, seed=5)
    assert_near(damped_power(matrix, 0.0), pinv(matrix), 1e-9)
    root = damped_power(matrix, 0.3, -0.5)
    assert_near(root @ root, inverse(matrix, 0.3), 1e-12)
    fourth = damped_power(matrix, 0.0, -0.25)
    assert_near(torch.linalg.matrix_power(fourth, 4), pinv(matrix), 1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_the_rank_is_cut_at_the_rounding_of_the_dtype(dtype):
    """An inverse without a ridge is as large as the smallest eigenvalue that is not rounding."""
    matrix = semidefinite(6, 3, seed=5)
    found = damped_power(matrix.to(dtype), 0.0).to(F64)
    assert_near(found, pinv(matrix), 1e3 * torch.finfo(dtype).eps)


def test_a_decomposition_serves_every_ridge():
    matrix = semidefinite(6, 9, seed=2)
    values, vectors = decomposed(matrix)
    for ridge in (0.1, 3.0):
        assert_near(from_eigen(values, vectors, ridge), inverse(matrix, ridge), 1e-12)


def test_zero_has_the_inverse_zero():
    zero = torch.zeros(3, 3, dtype=F64)
    assert_near(damped_power(zero, 0.0, -0.25), zero, 0)


def test_members_of_a_stack_do_not_mix():
    stack = torch.stack([semidefinite(5, 8, seed) for seed in range(3)])
    expected = torch.stack([inverse(each, 0.2) for each in stack])
    assert_near(damped_power(torch.tril(stack), 0.2), expected, 1e-9)


def test_a_stack_that_eigh_fails_on_is_decomposed_one_by_one(monkeypatch):
    """Seen with a float32 stack whose last matrix ends in empty rows."""
    matrix = randn(3, 5, 5, seed=7)
    stack = (matrix @ matrix.mT).float()
    wanted = damped_power(stack, 0.1, -0.5)
    true = torch.linalg.eigh

    def failing(a):
        values, vectors = true(a)
        if a.ndim == 3:
            values[-1], vectors[-1] = torch.nan, torch.nan
        return values, vectors

    monkeypatch.setattr(torch.linalg, "eigh", failing)
    torch.testing.assert_close(damped_power(stack, 0.1, -0.5), wanted)
