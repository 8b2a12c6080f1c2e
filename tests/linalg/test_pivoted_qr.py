import pytest
import torch

from natgrad.linalg._pivoted_qr import pivoted_qr
from tests.helpers import DTYPES, assert_near, pinv, randn, with_spectrum

SPECTRA = {
    "square": (6, 6, [3, 2, 1, 0.5, 0.1, 0.02]),
    "square, rank 2": (6, 6, [3, 0.5]),
    "tall": (9, 4, [1, 0.5, 0.2, 0.1]),
    "tall, rank 1": (9, 4, [2]),
    "wide": (4, 9, [1, 0.9, 0.8, 0.7]),
    "wide, rank 2": (4, 9, [1, 0.01]),
    "ill-conditioned": (5, 5, [1, 1e-2, 1e-4, 1e-6, 1e-8]),
}


@pytest.mark.parametrize("name", SPECTRA)
def test_solves_as_the_pseudo_inverse_of_numpy(name):
    m, n, values = SPECTRA[name]
    a, b = with_spectrum(m, n, values, seed=3), randn(m, 2, seed=4)
    found = pivoted_qr(a)
    assert found.rank == len(values)
    expected = pinv(a, rtol=1e-13) @ b
    assert_near(found.solve(b), expected, 1e-13 * (max(values) / min(values)) ** 2 + 1e-12)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rank_counts_what_the_dtype_can_tell(dtype):
    a = with_spectrum(8, 8, [1, 1e-2, 1e-9], seed=5).to(dtype)
    assert pivoted_qr(a).rank == (3 if dtype == torch.float64 else 2)
    assert pivoted_qr(a, rtol=0.1).rank == 1
    assert pivoted_qr(a).solve(randn(8, 1, seed=6).to(dtype)).dtype == dtype


def test_zero_has_no_rank_and_the_zero_solution():
    found = pivoted_qr(torch.zeros(3, 2).double())
    assert found.rank == 0
    assert not bool(found.solve(torch.ones(3, 1).double()).any())


def test_factors_multiply_to_the_matrix():
    a = randn(5, 7, seed=1)
    found = pivoted_qr(a)
    assert_near(found.q @ found.r, a[:, found.order], 1e-13)
