"""Randomized pseudo-inverses against dense ones, on matrices with given spectra."""

import pytest
import torch

from natgrad.errors import InvalidInputError, NonFiniteError, ShapeError
from natgrad.linalg._randomized import randomized_pinv
from tests.helpers import F64, assert_near, randn


def built(values, m, n):
    """Return a matrix of these singular values, and its singular vectors."""
    u = torch.linalg.qr(randn(m, len(values), seed=1))[0]
    v = torch.linalg.qr(randn(n, len(values), seed=2))[0]
    return (u * torch.tensor(values, dtype=F64)) @ v.mT, u, v


@pytest.mark.parametrize(("m", "n"), [(40, 40), (60, 30), (30, 60)])
def test_a_matrix_of_that_rank_has_its_pseudo_inverse(m, n):
    values = [10.0 ** -(k / 2) for k in range(6)]
    a, _, _ = built(values, m, n)
    assert_near(randomized_pinv(a, 6), torch.linalg.pinv(a, rtol=1e-10), 1e-10)
    assert_near(randomized_pinv(a, 20), torch.linalg.pinv(a, rtol=1e-10), 1e-10)


def test_a_larger_spectrum_is_cut_at_the_rank():
    values = [1.0, 0.7, 0.5] + [1e-4] * 27
    a, u, v = built(values, 30, 40)
    best = (v[:, :3] / torch.tensor(values[:3], dtype=F64)) @ u[:, :3].mT
    assert_near(randomized_pinv(a, 3), best, 1e-10)


def test_what_is_below_the_cut_off_counts_as_zero():
    a, u, v = built([1.0, 0.5, 1e-6], 9, 7)
    best = (v[:, :2] / torch.tensor([1.0, 0.5], dtype=F64)) @ u[:, :2].mT
    assert_near(randomized_pinv(a, 3, rtol=1e-3), best, 1e-10)
    zero = torch.zeros(4, 3)
    assert torch.equal(randomized_pinv(zero, 2), zero.mT)


def test_bad_input_gets_a_sentence():
    with pytest.raises(ShapeError, match="must be a matrix"):
        randomized_pinv(torch.ones(3), 1)
    with pytest.raises(InvalidInputError, match="from 1 to 2, but is 3"):
        randomized_pinv(torch.ones(2, 5), 3)
    with pytest.raises(NonFiniteError, match="must be finite"):
        randomized_pinv(torch.tensor([[float("nan")]]), 1)
