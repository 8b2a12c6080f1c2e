"""Solvers of damped factors against dense inverses."""

import pytest
import torch
from torch import Tensor

from natgrad import Gaussian
from natgrad.errors import RankDeficientError
from natgrad.optim import NGD, Quadratic
from natgrad.optim._curvature.factor import Factor, Gram, add_gram, symmetric
from natgrad.optim._curvature.inverse import Dense, Keeper, by_cholesky
from natgrad.optim._curvature.solvers import Row, by_low_rank, by_woodbury, corrected
from tests.helpers import F64, assert_near, randn
from tests.optim.nets import backward, mlp, seeded, train


def moment(n: int, rows: int, seed: int) -> Tensor:
    x = randn(rows, n, seed=seed)
    return x.mT @ x / rows


def inverse(matrix: Tensor, ridge: float) -> Tensor:
    return torch.linalg.inv(matrix + ridge * torch.eye(len(matrix), dtype=matrix.dtype))


@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 9])
def test_few_rows_stand_for_their_sum(rows, ones):
    """In sums, multiples and averages alike; their number only decides how it is done."""
    x = randn(rows, 19, seed=1)
    full = torch.cat([x, torch.ones(rows, 1, dtype=F64)], dim=1) if ones else x
    truth, other = full.mT @ full, moment(full.shape[1], 30, seed=2)
    gram = Gram.of(x, ones=ones)
    assert (gram.rows is not None) == (rows <= 2)
    assert_near(symmetric(gram.times(0.3).summed()), 0.3 * truth, 1e-12)
    assert_near(symmetric(gram.plus(Gram(total=other)).summed()), truth + other, 1e-12)
    average = other.clone()
    gram.blend(average, 0.2)
    assert_near(symmetric(average), 0.8 * other + 0.2 * truth, 1e-12)


@pytest.mark.parametrize("n", [3, 127, 128, 129, 300])
@pytest.mark.parametrize("ones", [False, True])
def test_grams_by_blocks(n, ones):
    x = randn(11, n, seed=1)
    rows = torch.cat([x, torch.ones(11, 1, dtype=F64)], dim=1) if ones else x
    total = torch.zeros(rows.shape[1], rows.shape[1], dtype=F64)
    add_gram(total, x, weight=0.5, ones=ones)
    add_gram(total, x, weight=1.5, ones=ones)
    assert_near(symmetric(total), 2 * rows.mT @ rows, 1e-13)


def test_the_lower_triangle_is_enough():
    matrix = moment(6, 9, seed=2)
    lower = torch.tril(matrix) + torch.triu(randn(6, 6, seed=3), 1)
    assert_near(by_cholesky(lower, 0.1), inverse(matrix, 0.1), 1e-12)
    assert_near(symmetric(lower), matrix, 1e-15)


def test_cholesky_falls_back_to_double_precision():
    v = torch.arange(1.0, 9.0) * 64  # v vᵀ is exact in float32, but swallows the ridge
    matrix, ridge = torch.outer(v, v), 2.0**-7
    assert int(torch.linalg.cholesky_ex(matrix + ridge * torch.eye(8))[1])
    found = by_cholesky(matrix, ridge)
    assert found.dtype == torch.float32
    wide = v.double()
    truth = torch.eye(8, dtype=F64) - torch.outer(wide, wide) / (ridge + wide @ wide)
    assert_near(found, truth / ridge, 1e-5)
    with pytest.raises(RankDeficientError, match="damping"):
        by_cholesky(-torch.eye(3), 0.1)


@pytest.mark.parametrize("rows", [1, 4])
def test_woodbury_updates(rows):
    matrix, fresh = moment(8, 20, seed=6), randn(rows, 8, seed=7)
    found = by_woodbury(inverse(matrix, 0.2), fresh, 0.3)
    truth = torch.linalg.inv(0.7 * (matrix + 0.2 * torch.eye(8, dtype=F64)) + fresh.mT @ fresh)
    assert_near(found, truth, 1e-12)


def test_a_row_alone_needs_no_matrix():
    factor, keeper, x = Factor(memory=0), Keeper(), randn(1, 20, seed=40)
    factor.update(Gram(rows=x), n=1)
    keeper.refresh(factor, 0.3)
    truth, g = inverse(x.mT @ x, 0.3), randn(20, 4, seed=41)
    assert keeper.used == "row"
    assert_near(keeper.inverse.left(g), truth @ g, 1e-13)
    assert_near(keeper.inverse.right(g.mT), g.mT @ truth, 1e-13)
    assert factor.mean_eigenvalue() == pytest.approx(float((x.mT @ x).diagonal().mean()))
    assert_near(symmetric(factor.matrix), x.mT @ x, 1e-15)
    again = Keeper()
    again.load_state_dict(keeper.state_dict(), x)
    assert torch.equal(again.inverse.left(g), keeper.inverse.left(g))


def test_along_a_row_alone_nothing_is_lost_to_rounding():
    """1/(γ + |x|²) is a billionth of 1/γ here; a factorization in single precision loses it."""
    x = 30 * randn(60, 1, seed=42).float()
    square = float(x.double().mT @ x.double())
    assert_near(Row(x, 1e-4).left(x), x.double() / (1e-4 + square), 1e-5)


def test_a_row_of_zeros_leaves_the_ridge():
    found = Row(torch.zeros(3, 1), 0.5).left(torch.ones(3, 1))
    assert torch.equal(found, torch.full((3, 1), 2.0))


def test_low_rank_is_exact_on_what_it_keeps():
    spectrum = torch.cat([torch.logspace(1, -1, 5, dtype=F64), torch.full((25,), 1e-7, dtype=F64)])
    q = torch.linalg.qr(randn(30, 30, seed=8))[0]
    matrix = (q * spectrum) @ q.mT
    found = by_low_rank(torch.tril(matrix), 0.01, rank=5)
    g = randn(4, 30, seed=9)
    assert_near(found.right(g), g @ inverse(matrix, 0.01), 1e-9)
    assert_near(found.left(g.mT), (g @ inverse(matrix, 0.01)).mT, 1e-9)


def test_low_rank_bounds_the_rest_by_its_mean():
    """An eigenvalue left out lies in [0, μ], as does the mean: off by at most μ / (γ (γ + μ))."""
    values = torch.logspace(0, -12, 40, dtype=F64)
    q = torch.linalg.qr(randn(40, 40, seed=10))[0]
    matrix, ridge, rank = (q * values) @ q.mT, 1e-3, 12
    dense = by_low_rank(matrix, ridge, rank).left(torch.eye(40, dtype=F64))
    error = float(torch.linalg.matrix_norm(dense - inverse(matrix, ridge), 2))
    left_out = float(values[rank])
    assert error <= 1.01 * left_out / (ridge * (ridge + left_out))


def updated(factor: Factor, x: Tensor) -> None:
    factor.update(Gram(rows=x / len(x) ** 0.5), n=len(x))


def test_sherman_morrison_follows_an_adaptive_damping():
    """Few rows update the inverse; the ridge inside is known, and renewed when it is off."""
    factor, keeper, used = Factor(memory=100), Keeper(), []
    eye = torch.eye(10, dtype=F64)
    for k in range(60):
        ridge = 0.1 if k < 40 else 0.9
        updated(factor, randn(50 if k == 0 else 1, 10, seed=k))
        keeper.refresh(factor, ridge)
        used.append(keeper.used)
        assert isinstance(keeper.inverse, Dense)
        # Exactly the inverse of the average with a known ridge; corrected for the one wanted.
        assert_near(keeper.inverse.matrix, inverse(symmetric(factor.matrix), keeper.ridge), 1e-9)
        truth = inverse(symmetric(factor.matrix), ridge)
        assert_near(keeper.product.left(eye) @ torch.linalg.inv(truth), eye, 0.0101)
    assert used[0] == "cholesky"
    assert used[40] == "cholesky"  # the damping jumped
    assert used.count("woodbury") > 55


@pytest.mark.parametrize(
    ("ratio", "products"), [(1.0, 1), (1.02, 1), (1.3, 2), (1.9, 3), (2.9, 4), (3.1, 5)]
)
@pytest.mark.parametrize("up", [True, False])
def test_products_are_corrected_for_a_ridge(ratio, products, up):
    """Within 1 % along every eigenvector, whatever the spectrum."""
    values = torch.cat([torch.zeros(1, dtype=F64), torch.logspace(-6, 6, 200, dtype=F64)])
    ridge, wanted = (1.0, ratio) if up else (ratio, 1.0)
    seen = []

    def product(g):
        seen.append(1)
        return g / (values + ridge)

    found = corrected(product, torch.ones(201, dtype=F64), ridge, wanted) * (values + wanted)
    assert float((found - 1).abs().max()) <= 0.01
    assert len(seen) == products


@pytest.mark.parametrize(("rows", "kind"), [(1, "woodbury"), (3, "cholesky")])
def test_directions_of_few_rows_are_those_of_cholesky(rows, kind):
    """While the damping adapts: within 1 % for each factor, and so 2 % of a layer's direction."""
    model, criterion = seeded(lambda: mlp(20, 24, 20, 2)), Gaussian()
    x, y = randn(60 * rows, 20, seed=1), randn(60 * rows, 2, seed=2)
    optimizer, used, dampings = NGD(model, criterion, step_length=Quadratic()), [], set()
    for k in range(60):
        batch = slice(k * rows, (k + 1) * rows)
        backward(model, criterion, x[batch], y[batch])
        gradients = {n: b.layer.gradient() for n, b in blocks_of(optimizer).items()}
        optimizer.step()
        if not optimizer.statistics.refreshed:
            continue
        dampings.add(optimizer.statistics.damping)
        for name, block in blocks_of(optimizer).items():
            used += [block.left.used, block.right.used]
            left, right = (
                inverse(symmetric(f.matrix), keeper.wanted)
                for f, keeper in ((block.errors, block.left), (block.inputs, block.right))
            )
            truth, found = left @ gradients[name] @ right, block.direction(gradients[name])
            assert float((found - truth).norm()) <= 0.0202 * float(truth.norm())
    assert len(dampings) > 10
    assert used.count(kind) > 40


def blocks_of(optimizer):
    return optimizer._core.preconditioner.blocks


def test_many_rows_are_factorised():
    factor, keeper = Factor(memory=100), Keeper()
    for k in range(3):
        updated(factor, randn(5, 10, seed=k))
        keeper.refresh(factor, 0.1)
        assert keeper.used == "cholesky"
    forced = Keeper("woodbury")
    forced.refresh(factor, 0.1)
    updated(factor, randn(5, 10, seed=9))
    forced.refresh(factor, 0.1)
    assert forced.used == "woodbury"


def test_nothing_is_done_twice():
    factor, keeper = Factor(memory=0), Keeper()
    factor.update(Gram(total=moment(4, 9, seed=11)), n=9)
    keeper.refresh(factor, 0.1)
    held = keeper.inverse
    keeper.refresh(factor, 0.1)
    assert keeper.inverse is held
    keeper.refresh(factor, 0.2)
    assert keeper.inverse is not held


@pytest.mark.parametrize("solver", ["cholesky", "eigen", "woodbury", "low_rank"])
def test_every_solver_trains(solver):
    model, criterion = seeded(lambda: mlp(20, 16, 2)), Gaussian()
    x, y = randn(64, 20, seed=12), randn(64, 2, seed=13)
    losses = train(
        NGD(model, criterion, step_length=Quadratic(), solver=solver), criterion, x, y, 20
    )
    assert losses[-1] < 0.1 * losses[0]


def test_exact_solvers_agree():
    ends = []
    for solver in ("auto", "cholesky", "eigen"):
        model, criterion = seeded(lambda: mlp(20, 16, 2)), Gaussian()
        x, y = randn(64, 20, seed=12), randn(64, 2, seed=13)
        train(NGD(model, criterion, solver=solver), criterion, x, y, 5)
        ends.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    assert_near(ends[0], ends[1], 1e-7)
    assert_near(ends[2], ends[1], 1e-7)


def test_a_constant_factor_is_decomposed_once(monkeypatch):
    """Whatever the damping does, and to the numbers of a fresh factorization."""
    factor, keeper, matrix = Factor(memory=0), Keeper(), randn(6, 6, seed=1)
    matrix = matrix @ matrix.mT
    factor.fix(torch.tril(matrix))
    calls, eigh = [], torch.linalg.eigh
    monkeypatch.setattr(torch.linalg, "eigh", lambda m: (calls.append(1), eigh(m))[1])
    for ridge in (0.5, 0.1, 2.0):
        keeper.refresh(factor, ridge)
        assert keeper.used == "constant"
        assert_near(keeper.inverse.matrix, inverse(matrix, ridge), 1e-10)
    assert len(calls) == 1


def test_stacks_are_inverted_one_by_one():
    stack = torch.stack([randn(5, 5, seed=k) for k in range(3)])
    stack = stack @ stack.mT
    expected = torch.stack([inverse(each, 0.2) for each in stack])
    assert_near(by_cholesky(torch.tril(stack), 0.2), expected, 1e-9)
    # A stack with one singular member falls back to double precision, and still fails without γ.
    single = torch.stack([torch.ones(2, 2), torch.eye(2)])
    assert_near(by_cholesky(single, 1e-9)[1], torch.eye(2), 1e-6)


@pytest.mark.parametrize("size", [1e-18, 1e-19, 3e-20, 1e-30])
def test_a_row_of_nearly_zeros_leaves_the_ridge(size):
    x = torch.zeros(4, 1)
    x[1] = size
    assert_near(Row(x, 0.5).left(x), 2 * x.double(), 1e-6)
    assert_near(Row(x, 0.5).left(torch.ones(4, 1)), torch.full((4, 1), 2.0), 1e-6)
