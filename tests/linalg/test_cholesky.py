import pytest
import torch

from natgrad.errors import NonFiniteError, RankDeficientError
from natgrad.linalg import cholesky
from tests.helpers import DTYPES, F64, assert_near, randn


def spd(n: int) -> torch.Tensor:
    root = randn(n, n, seed=n)
    return root @ root.mT + torch.eye(n, dtype=F64)


def needs_double() -> torch.Tensor:
    """A float32 matrix, positive definite as stored, on which float32 Cholesky breaks down."""
    for seed in range(100):
        root = randn(6, 6, seed=seed)
        root[:, -1] = root[:, 0] * (1 + 1e-4)
        matrix = (root.mT @ root + 3e-7 * torch.eye(6, dtype=F64)).float()
        single = torch.linalg.cholesky_ex(matrix)[1]
        double = torch.linalg.cholesky_ex(matrix.double())[1]
        if int(single) and not int(double):
            return matrix
    raise AssertionError("no seed gives a matrix for which only double precision succeeds")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_factor_reproduces_the_matrix(n, dtype):
    matrix = spd(n).to(dtype)
    factor = cholesky(matrix)
    assert factor.dtype == dtype
    assert torch.equal(factor, factor.tril())
    assert bool((factor.diagonal() > 0).all())
    assert_near(factor @ factor.mT, matrix, 10 * n * torch.finfo(dtype).eps)


def test_single_precision_falls_back_to_double():
    matrix = needs_double()
    factor = cholesky(matrix)
    assert factor.dtype == F64
    assert_near(factor @ factor.mT, matrix.double(), 1e-14)


@pytest.mark.parametrize(
    "matrix",
    [[[1.0, 2.0], [2.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]], [[-1.0]]],
    ids=["indefinite", "singular", "zero", "negative"],
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_not_positive_definite_is_refused(matrix, dtype):
    with pytest.raises(RankDeficientError) as error:
        cholesky(torch.tensor(matrix, dtype=dtype), name="the covariance")
    message = str(error.value)
    assert message.startswith("the covariance must be positive definite")
    assert "eigenvalues from" in message
    assert "damping" in message


def test_eigenvalues_in_the_message_are_right():
    with pytest.raises(RankDeficientError, match=r"order 2 .* from -1\.00e\+00 to 3\.00e\+00"):
        cholesky(torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=F64))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_matrices_are_refused(bad):
    with pytest.raises(NonFiniteError, match=r"the noise .* 1 of its 4 entries"):
        cholesky(torch.tensor([[1.0, 0.0], [0.0, bad]]), name="the noise")
