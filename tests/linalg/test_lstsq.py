import pytest
import torch

from natgrad.errors import NonFiniteError, ShapeError
from natgrad.linalg import lstsq
from natgrad.linalg._precision import default_rtol
from tests.helpers import DTYPES, F64, assert_near, integers, pinv, randn, with_spectrum
from tests.linalg.exact import exact_graded

# rows, columns, singular values
SPECTRA = {
    "square": (5, 5, [3, 2, 1, 0.5, 0.1]),
    "square-rank-2": (5, 5, [3, 0.5]),
    "tall": (12, 4, [1, 0.5, 0.2, 0.1]),
    "tall-rank-3": (12, 4, [1, 0.5, 0.2]),
    "tall-rank-1": (12, 4, [2]),
    "wide": (4, 11, [1, 0.9, 0.8, 0.7]),
    "wide-rank-2": (4, 11, [1, 0.01]),
    "ill-conditioned": (8, 3, [1, 1e-1, 1e-3]),
    "one-row": (1, 6, [2]),
    "one-column": (6, 1, [2]),
}


def tolerance(a: torch.Tensor, values: list[float]) -> float:
    condition = max(values) / min(values)
    return 50 * default_rtol(*a.shape, dtype=a.dtype) * condition


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", SPECTRA)
def test_agrees_with_the_pseudo_inverse_of_numpy(name, dtype):
    m, n, values = SPECTRA[name]
    a = with_spectrum(m, n, values, seed=3).to(dtype)
    b = randn(m, seed=4).to(dtype)
    fit = lstsq(a, b)
    assert fit.rank == len(values)
    assert fit.rtol == max(m, n) * torch.finfo(dtype).eps
    assert fit.solution.dtype == dtype
    expected = pinv(a, rtol=fit.rtol) @ b.double()
    # The residual enters a least-squares solution with the squared condition number.
    assert_near(fit.solution, expected, tolerance(a, values) * max(values) / min(values))


@pytest.mark.parametrize("name", SPECTRA)
def test_residual_and_solution_lie_in_the_right_spaces(name):
    m, n, values = SPECTRA[name]
    a, b = with_spectrum(m, n, values, seed=5), randn(m, seed=6)
    x = lstsq(a, b).solution
    assert float((a.mT @ (a @ x - b)).abs().max()) < 1e-12
    inside = pinv(a) @ a  # the projector on the row space
    assert_near(inside @ x, x, 1e-11)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (7, 5)], ids=str)
def test_agrees_with_exact_arithmetic_on_whole_numbers(shape, seed):
    rank = 1 + seed % min(shape)
    a = integers(shape[0], rank, seed=seed) @ integers(rank, shape[1], seed=seed + 50)
    b = integers(shape[0], seed=seed + 90)
    expected, true_rank = exact_graded(a, b, torch.zeros(shape[0], dtype=F64))
    fit = lstsq(a, b)
    assert fit.rank == true_rank
    assert_near(fit.solution, expected, 1e-11)


def test_several_right_hand_sides_are_solved_one_by_one():
    a, b = with_spectrum(7, 5, [2, 1, 0.3], seed=1), randn(7, 3, seed=2)
    many = lstsq(a, b)
    assert many.solution.shape == (5, 3)
    for j in range(3):
        assert_near(many.solution[:, j], lstsq(a, b[:, j]).solution, 1e-13)


@pytest.mark.parametrize(
    ("rtol", "rank"), [(1e-12, 3), (1e-5, 2), (0.05, 1)], ids=["keep", "cut-one", "cut-two"]
)
def test_cut_off_is_relative_to_the_largest_singular_value(rtol, rank):
    a, b = with_spectrum(6, 4, [100.0, 1.0, 1e-4], seed=7), randn(6, seed=8)
    fit = lstsq(a, b, rtol=rtol)
    assert (fit.rank, fit.rtol) == (rank, rtol)
    assert_near(fit.solution, pinv(a, rtol=rtol) @ b, 1e-8)


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0)], ids=str)
def test_empty_systems_have_the_zero_solution(shape):
    fit = lstsq(torch.zeros(shape, dtype=F64), torch.zeros(shape[0], dtype=F64))
    assert fit.rank == 0
    assert fit.solution.tolist() == [0.0] * shape[1]


def test_zero_matrix_has_rank_zero():
    fit = lstsq(torch.zeros(3, 2, dtype=F64), torch.ones(3, dtype=F64))
    assert fit.rank == 0
    assert fit.solution.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("shape", [(6, 3), (3, 6), (4, 4)], ids=str)
@pytest.mark.parametrize("power", [-307, -160, -154, -150, -76, 76, 150, 154, 160, 300])
def test_scale_of_the_matrix_does_not_matter(power, shape):
    a, x = randn(*shape, seed=1), randn(shape[1], seed=2)
    expected = pinv(a) @ (a @ x)
    fit = lstsq(a * 10.0**power, a @ x)
    assert fit.rank == min(shape)
    assert_near(fit.solution * 10.0**power, expected, 1e-10)


@pytest.mark.parametrize("shape", [(6, 3), (3, 6)], ids=str)
@pytest.mark.parametrize(
    ("matrix", "rhs"), [(150, 160), (150, 200), (-150, -160), (-150, -290), (150, -150)]
)
def test_scale_of_both_sides_does_not_matter(matrix, rhs, shape):
    """The answer is far from overflow although products of the two sides are not."""
    a, x = randn(*shape, seed=1), randn(shape[1], seed=2)
    expected = pinv(a) @ (a @ x)
    fit = lstsq(a * 10.0**matrix, (a @ x) * 10.0**rhs)
    assert_near(fit.solution * 10.0 ** (matrix - rhs), expected, 1e-10)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_entries_are_refused_and_counted(bad):
    a, b = torch.ones(2, 3, dtype=F64), torch.ones(2, dtype=F64)
    a[0, 1] = bad
    with pytest.raises(NonFiniteError, match=r"matrix .* 1 of its 6 entries"):
        lstsq(a, b)
    with pytest.raises(NonFiniteError, match=r"right-hand side .* 2 of its 2 entries"):
        lstsq(torch.ones(2, 3, dtype=F64), bad * b)


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (3,)), ((3, 2), (2,)), ((3, 2), ()), ((2, 3, 2), (2,)), ((3, 2), (3, 1, 1))]
)
def test_wrong_shapes_are_refused_and_named(a, b):
    with pytest.raises(ShapeError) as error:
        lstsq(torch.zeros(a), torch.zeros(b))
    assert "(m, n)" in str(error.value)
    assert str(a) in str(error.value)
    assert str(b) in str(error.value)
