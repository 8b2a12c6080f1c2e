import cvxpy
import pytest
import torch

from natgrad.errors import ConvergenceError
from natgrad.limits import nuclear_norm
from tests.helpers import DTYPES, F64, assert_near, chain, positions, randn


def problem(rows: int, columns: int, rank: int, n: int, seed: int):
    left, right = chain((rows, rank, columns), seed)
    x = positions(rows, columns, n, seed)
    truth = left @ right * (rows * columns) ** 0.5 / (left @ right).norm()
    return x, truth[x[:, 0], x[:, 1]], truth


def recomputed_gap(x, values, limit):
    """Weak duality: Y is zero outside the observed entries and has spectral norm at most one."""
    y = limit.dual
    on = torch.zeros_like(y, dtype=torch.bool)
    on[x[:, 0], x[:, 1]] = True
    assert not bool(y[~on].any())
    assert float(torch.linalg.matrix_norm(y, 2)) <= 1 + 1e-12
    assert torch.equal(limit.solution[x[:, 0], x[:, 1]], values)
    norm = float(torch.linalg.matrix_norm(limit.solution, "nuc"))
    assert limit.value == pytest.approx(norm, rel=1e-9)
    return (norm - float((y * limit.solution).sum())) / norm


CASES = [(15, 15, 2, 100), (15, 15, 3, 60), (10, 18, 2, 90), (18, 10, 1, 40), (6, 1, 1, 4)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gap_recomputed_and_value_of_cvxpy(case):
    x, values, _ = problem(*case, seed=3)
    limit = nuclear_norm(x, values, case[:2])
    assert -1e-12 < recomputed_gap(x, values, limit) <= 1e-6
    b = cvxpy.Variable(case[:2])
    observed = cvxpy.hstack([b[int(i), int(j)] for i, j in x])
    judge = cvxpy.Problem(cvxpy.Minimize(cvxpy.normNuc(b)), [observed == values.numpy()])
    judge.solve(solver="CLARABEL")
    assert limit.value == pytest.approx(judge.value, rel=2e-6)


@pytest.mark.parametrize("n", [1000, 2000])
def test_size_of_the_paper(n):
    x, values, _ = problem(100, 100, 5, n, seed=1)
    limit = nuclear_norm(x, values, (100, 100), rtol=1e-5)
    assert recomputed_gap(x, values, limit) <= 1e-5


def test_enough_entries_recover_the_matrix():
    x, values, truth = problem(30, 30, 2, 600, seed=2)
    assert_near(nuclear_norm(x, values, (30, 30), rtol=1e-9).solution, truth, 1e-4)


def test_everything_observed_is_returned():
    x, values, truth = problem(5, 4, 2, 20, seed=4)
    limit = nuclear_norm(x, values, (5, 4))
    assert_near(limit.solution, truth, 1e-12)


def test_nothing_but_zeros():
    limit = nuclear_norm(torch.tensor([[0, 1]]), torch.zeros(1, dtype=F64), (3, 3))
    assert not bool(limit.solution.any())


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scale(scale):
    x, values, _ = problem(12, 12, 2, 80, seed=5)
    one = nuclear_norm(x, values, (12, 12)).solution
    assert_near(nuclear_norm(x, scale * values, (12, 12)).solution / scale, one, 1e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_is_kept(dtype):
    x, values, _ = problem(8, 8, 1, 40, seed=6)
    limit = nuclear_norm(x, values.to(dtype), (8, 8))
    assert limit.solution.dtype == limit.dual.dtype == dtype


def test_repeated_observations_that_agree_are_one():
    x, values, _ = problem(8, 8, 1, 30, seed=7)
    twice = nuclear_norm(torch.cat([x, x]), torch.cat([values, values]), (8, 8))
    assert_near(twice.solution, nuclear_norm(x, values, (8, 8)).solution, 1e-12)


def test_too_few_iterations_are_an_error():
    x, values = positions(20, 20, 150, seed=8), randn(150, seed=8)
    with pytest.raises(ConvergenceError, match="iterations"):
        nuclear_norm(x, values, (20, 20), max_evaluations=20)
