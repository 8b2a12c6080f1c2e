"""Against exact arithmetic: weights e^{2ℓ} at the margin spreads of confidently fitted data."""

import math

import pytest
import torch

from natgrad.errors import NonFiniteError, VelocityOverflowError
from natgrad.linalg import graded_fisher_solve, graded_lstsq
from tests.helpers import DTYPES, F64, assert_near, generator, integers
from tests.linalg.exact import exact_fisher_solve, exact_graded

SPREADS = [0.0, 5.0, 50.0, 1500.0, 5000.0]  # of the margin; of ℓ half of that
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def tall(seed):
    return integers(9, 4, seed=seed)


def wide(seed):
    return integers(3, 6, seed=seed)


def square(seed):
    return integers(4, 4, seed=seed)


def duplicates(seed):
    rows = integers(4, 3, seed=seed)
    return torch.cat([rows, rows[:3], 2 * rows[1:2], -rows[3:]])


def wide_dependent(seed):
    rows = integers(4, 7, seed=seed)
    return torch.cat([rows, rows[:1] + rows[1:2], rows[2:3] - 2 * rows[3:]])


def rank_two(seed):
    return integers(8, 2, seed=seed) @ integers(2, 5, seed=seed + 500)


def with_zero_rows(seed):
    rows = integers(6, 3, seed=seed)
    rows[::3] = 0
    return rows


ROWS = [tall, wide, square, duplicates, wide_dependent, rank_two, with_zero_rows]


def uniform(n, spread, seed):
    """ℓ spread evenly at random over its range, in no particular order."""
    return -spread / 2 * torch.rand(n, dtype=F64, generator=generator(seed))


def two_levels(n, spread, seed):
    """Half of the rows heavy, half light, each level a little blurred."""
    level = torch.randint(0, 2, (n,), generator=generator(seed)).to(F64)
    return -spread / 2 * level + uniform(n, 2.0, seed + 1)


LEVELS = [uniform, two_levels]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("levels", LEVELS)
@pytest.mark.parametrize("rows", ROWS)
def test_agrees_with_exact_arithmetic(rows, levels, spread, dtype):
    for seed in range(4):
        a = rows(seed).to(dtype)
        b = integers(len(a), seed=seed + 1000).to(dtype)
        ell = levels(len(a), spread, seed).to(dtype)
        expected, rank = exact_graded(a, b, ell)
        fit = graded_lstsq(a, b, ell)
        assert fit.rank == rank, f"seed {seed}"
        assert fit.solution.dtype == dtype
        assert_near(fit.solution, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("spread", SPREADS)
def test_many_random_systems(spread):
    for seed in range(40):
        n, p = 2 + seed % 7, 1 + seed % 5
        a = integers(n, p, seed=seed, bound=3)
        b = integers(n, seed=seed + 1)
        ell = LEVELS[seed % 2](n, spread, seed)
        expected, rank = exact_graded(a, b, ell)
        fit = graded_lstsq(a, b, ell)
        assert fit.rank == rank, f"seed {seed}"
        assert_near(fit.solution, expected, 1e-10)


@pytest.mark.parametrize("spread", SPREADS[1:])
def test_dependent_heavy_rows_leave_the_rest_to_light_ones(spread):
    """Four heavy rows span a plane and contradict each other; one light row decides the rest."""
    heavy = torch.tensor([[1, 2, 0], [0, 1, 1], [1, 3, 1], [2, 5, 1]], dtype=F64)
    a = torch.cat([heavy, torch.tensor([[1.0, 1.0, 1.0]], dtype=F64)])
    b = torch.tensor([1.0, -2.0, 3.0, 0.5, 7.0], dtype=F64)
    ell = torch.tensor([0.0, -0.3, -0.1, 0.0, -spread / 2], dtype=F64)
    expected, rank = exact_graded(a, b, ell)
    fit = graded_lstsq(a, b, ell)
    assert fit.rank == rank == 3
    assert_near(fit.solution, expected, 1e-12)
    assert float(a[4] @ fit.solution) == pytest.approx(7.0, abs=1e-11)


@pytest.mark.parametrize("spread", SPREADS)
def test_only_differences_of_log_weights_matter(spread):
    a, b, ell = duplicates(3), integers(len(duplicates(3)), seed=4), uniform(9, spread, 5)
    one = graded_lstsq(a, b, ell).solution
    assert_near(graded_lstsq(a, b, ell + 700.0).solution, one, 1e-11)
    assert_near(graded_lstsq(a, b, ell - 3000.0).solution, one, 1e-11)


@pytest.mark.parametrize("spread", SPREADS)
def test_order_of_rows_does_not_matter(spread):
    a, b, ell = duplicates(6), integers(len(duplicates(6)), seed=7), uniform(9, spread, 8)
    order = torch.randperm(len(a), generator=generator(9))
    shuffled = graded_lstsq(a[order], b[order], ell[order]).solution
    assert_near(shuffled, graded_lstsq(a, b, ell).solution, 1e-11)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_scale_of_the_targets_does_not_matter(scale):
    a, b, ell = tall(1), integers(9, seed=2), uniform(9, 1500.0, 3)
    expected = graded_lstsq(a, b, ell).solution
    assert_near(graded_lstsq(a, scale * b, ell).solution / scale, expected, 1e-12)


@pytest.mark.parametrize(("which", "name"), [(0, "."), (1, "."), (2, "log-weights")])
@pytest.mark.parametrize("spread", [0.0, 1500.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_non_finite_arguments_are_refused(which, name, spread, bad):
    arguments = [tall(1), integers(9, seed=2), uniform(9, spread, 3)]
    arguments[which].view(-1)[0] = bad
    with pytest.raises(NonFiniteError, match=name):
        graded_lstsq(*arguments)


@pytest.mark.parametrize("spread", [0.0, 50.0, 1500.0])
def test_all_zero_rows_have_the_zero_solution(spread):
    fit = graded_lstsq(
        torch.zeros(4, 2, dtype=F64), torch.ones(4, dtype=F64), uniform(4, spread, 1)
    )
    assert fit.rank == 0
    assert fit.solution.tolist() == [0.0, 0.0]


# F⁺ d with the gradient's rows among, in the span of, or apart from the Fisher's.


def exact_direction(a, ell, g, m, c):
    v, rank = exact_fisher_solve(a, ell, g, m, c)
    return torch.tensor([float(x) for x in v], dtype=F64), rank


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("rows", ROWS)
def test_fisher_solve_with_the_gradients_rows_among_its_own(rows, spread, dtype):
    """A sample that includes the batch: the answer is of order one at every spread."""
    for seed in range(4):
        a = rows(seed).to(dtype)
        ell = uniform(len(a), spread, seed).to(dtype)
        c = integers(len(a), seed=seed + 1).to(dtype)
        batch = torch.arange(0, len(a), 2)
        arguments = (a, ell, a[batch], ell[batch], c[batch])
        expected, rank = exact_direction(*arguments)
        fit = graded_fisher_solve(*arguments)
        assert fit.rank == rank, f"seed {seed}"
        assert_near(fit.solution, expected, TOLERANCE[dtype])


@pytest.mark.parametrize("spread", SPREADS)
def test_fisher_solve_with_a_gradient_in_the_span_of_heavy_rows(spread):
    a = torch.tensor([[1, 2, 0, 1], [0, 1, 1, 3], [1, 0, 2, 1], [3, 1, 1, 1]], dtype=F64)
    ell = torch.tensor([0.0, -1.0, -spread / 2, -spread / 4], dtype=F64)
    g = torch.stack([a[0] + a[1], 2 * a[0] - 3 * a[1]])
    m, c = torch.tensor([-0.5, -1.5], dtype=F64), torch.tensor([1.0, 2.0], dtype=F64)
    expected, _ = exact_direction(a, ell, g, m, c)
    assert_near(graded_fisher_solve(a, ell, g, m, c).solution, expected, 1e-10)


@pytest.mark.parametrize("spread", [0.0, 5.0, 50.0, 500.0])
def test_fisher_solve_with_a_gradient_of_its_own(spread):
    """The answer may be as large as e^{spread}, and is accurate relative to its size."""
    for seed in range(6):
        a, g = tall(seed), integers(3, 4, seed=seed + 20)
        ell, m = uniform(9, spread, seed), uniform(3, spread, seed + 1)
        c = integers(3, seed=seed + 2)
        expected, _ = exact_direction(a, ell, g, m, c)
        assert_near(graded_fisher_solve(a, ell, g, m, c).solution, expected, 1e-9)


def test_fisher_solve_drops_what_the_fisher_does_not_see():
    a, g = rank_two(1), integers(3, 5, seed=2)
    ell, m, c = uniform(8, 50.0, 3), torch.zeros(3, dtype=F64), integers(3, seed=4)
    expected, rank = exact_direction(a, ell, g, m, c)
    fit = graded_fisher_solve(a, ell, g, m, c)
    assert fit.rank == rank == 2
    assert_near(fit.solution, expected, 1e-10)


def test_fisher_solve_says_when_the_answer_overflows():
    a = torch.eye(2, dtype=F64)
    ell = torch.tensor([0.0, -400.0], dtype=F64)
    one = torch.ones(1, dtype=F64)
    assert math.isinf(math.exp(709.0) * 10)  # e^{800} has no double
    with pytest.raises(VelocityOverflowError, match=r"overflows.*damping"):
        graded_fisher_solve(a, ell, a[1:], 0 * one, one)
