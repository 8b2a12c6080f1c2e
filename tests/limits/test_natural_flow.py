import importlib

import pytest
import torch

from natgrad.diagnostics import angle
from natgrad.limits import SeparabilityError, natural_flow, separability
from natgrad.limits._solvers.highs import least_cost
from tests.helpers import DTYPES, F64, assert_near, pinv, randn
from tests.limits.data import (
    deficient,
    flow_direction,
    not_separable,
    quasi,
    separable,
    shuffled,
    signed,
)

TALL = {"tall": separable(60, 8), "taller": separable(300, 20), "barely": separable(22, 20)}


def recomputed_gap(a, c, limit):
    b, lam = limit.solution, limit.dual
    assert bool((lam >= 0).all())
    assert_near(a.mT @ lam, c, 1e-9)
    assert float((a @ b).min()) > 1 - 1e-9
    return abs(float(c @ b) - float(lam.sum())) / float(lam.sum())


@pytest.mark.parametrize("start", [None, 0.3])
@pytest.mark.parametrize("name", TALL)
def test_is_the_vertex_of_highs_with_its_own_certificate(name, start):
    x, y = TALL[name]
    a = signed(x, y)
    beta0 = (
        torch.zeros(x.shape[1], dtype=F64) if start is None else start * randn(x.shape[1], seed=9)
    )
    limit = natural_flow(x, y, None if start is None else beta0)
    c = a.mT @ torch.sigmoid(-a @ beta0)
    assert limit.unique
    assert limit.certificate < 1e-9
    assert recomputed_gap(a, c, limit) < 1e-9
    b, lam = least_cost(a, c)
    assert_near(limit.solution, b, 1e-8)
    assert limit.basis.tolist() == (lam > 1e-9).nonzero()[:, 0].tolist()
    assert len(limit.basis) == x.shape[1]
    rows = a[limit.basis]
    assert_near(torch.linalg.solve(rows, torch.ones(len(rows), dtype=F64)), limit.solution, 1e-8)
    assert_near(torch.linalg.solve(rows.mT, c), limit.dual[limit.basis], 1e-8)


@pytest.mark.parametrize("shape", [(10, 30), (20, 20)], ids=str)
def test_independent_rows_give_the_shortest_interpolant(shape):
    x, y = separable(*shape)
    limit = natural_flow(x, y, randn(shape[1], seed=3))
    assert_near(limit.solution, pinv(x) @ y, 1e-8)
    assert limit.certificate < 1e-9
    assert limit.basis.tolist() == list(range(shape[0]))


@pytest.mark.parametrize("seed", range(4))
def test_is_where_the_flow_itself_goes(seed):
    x, y = separable(12, 3, seed=seed)
    beta0 = torch.zeros(3, dtype=F64) if seed < 2 else randn(3, seed=seed)
    limit = natural_flow(x, y, beta0)
    flow = flow_direction(signed(x, y), beta0, 20.0, 26.0)
    assert_near(limit.solution, flow, 1e-2)


@pytest.mark.parametrize("shape", [(15, 6, 3), (6, 15, 3)], ids=str)
def test_deficient_rank_stays_in_the_span(shape):
    x, y = deficient(*shape, seed=2)
    limit = natural_flow(x, y)
    assert_near(pinv(x) @ x @ limit.solution, limit.solution, 1e-10)
    a = signed(x, y)
    assert recomputed_gap(a, a.sum(0) / 2, limit) < 1e-9
    flow = flow_direction(a, torch.zeros(shape[1], dtype=F64), 20.0, 26.0)
    assert_near(limit.solution, flow, 1e-2)


# Row 0 is tight on the whole face b₀ = 1, because the other columns sum to zero. Then come the
# smallest slacks of the others: 1.2 + z/2 = 1.6 − z/2, and one level up 1.94 + w/2 = 2.06 − w/2.
FACES = {
    "edge": ([[1, 0], [1.2, 0.5], [1.6, -0.5]], [1, 0.4]),
    "edge-and-far-rows": ([[1, 0], [1.2, 0.5], [1.6, -0.5], [6, 0.3], [7, -0.3]], [1, 0.4]),
    "symmetric": ([[1, 0], [2, 0.4], [2, -0.4]], [1, 0]),
    "two-levels": (
        [[1, 0, 0], [1.2, 0.5, 0], [1.6, -0.5, 0], [1.9, 0.1, 0.5], [2.1, -0.1, -0.5]],
        [1, 0.4, 0.12],
    ),
}


@pytest.mark.parametrize("name", FACES)
def test_several_optima_give_the_centroid_to_which_the_path_tends(name):
    x, expected = (torch.tensor(v, dtype=F64) for v in FACES[name])
    limit = natural_flow(x, torch.ones(len(x), dtype=F64))
    assert limit.unique is False
    assert limit.certificate < 1e-9
    assert limit.basis.tolist() == [0]
    assert_near(limit.solution, expected, 1e-8)
    flow = flow_direction(x, torch.zeros(x.shape[1], dtype=F64), 16.0, 20.0)
    assert_near(limit.solution, flow, 5e-3)


def test_duplicated_rows_leave_the_optimum_unique():
    x, y = separable(40, 6)
    once, twice = natural_flow(x, y), natural_flow(torch.cat([x, x]), torch.cat([y, y]))
    assert twice.unique
    assert_near(twice.solution, once.solution, 1e-8)


@pytest.mark.parametrize("n", [4, 20])
def test_quasi_separable_data_hold_the_inseparable_rows_at_zero(n):
    x, y = shuffled(*quasi(n, 5, seed=4), seed=1)
    a = signed(x, y)
    limit = natural_flow(x, y)
    held = ~separability(x, y).separated
    assert int(held.sum()) == 6
    assert float((a[held] @ limit.solution).abs().max()) < 1e-12
    assert float((a[~held] @ limit.solution).min()) > 1 - 1e-9
    assert bool((limit.dual[held] == 0).all())
    assert limit.certificate < 1e-9
    flow = flow_direction(a, torch.zeros(5, dtype=F64), 9.0, 12.0)
    assert float(angle(limit.solution, flow)) < 5e-3


def test_data_that_are_not_separable_have_a_finite_end():
    with pytest.raises(SeparabilityError, match="finite minimizer") as caught:
        natural_flow(*not_separable(40, 5))
    assert caught.value.found.kind == "not separable"


def test_far_starts_do_not_underflow():
    x, y = separable(30, 4)
    limit = natural_flow(x, y, 1e4 * natural_flow(x, y).solution)
    assert limit.certificate < 1e-7
    assert bool(torch.isfinite(limit.solution).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtype_is_kept(dtype):
    x, y = (t.to(dtype) for t in separable(30, 6))
    assert natural_flow(x, y).solution.dtype == dtype


@pytest.mark.slow
@pytest.mark.parametrize("n", [1500, 2500])
def test_full_size(n):
    x, y = separable(n, 1000)
    limit = natural_flow(x, y)
    a = signed(x, y)
    assert recomputed_gap(a, a.sum(0) / 2, limit) < 1e-9
    assert limit.unique
    assert len(limit.basis) == 1000


@pytest.mark.parametrize("missed", [1, 2, 5])
def test_rows_that_the_interior_point_missed_are_found(monkeypatch, missed):
    x, y = separable(60, 8)
    expected = natural_flow(x, y)
    module = importlib.import_module("natgrad.limits._natural_flow")
    solve = module._by_interior

    def careless(a, c):
        near = solve(a, c)
        rows = near.rows.clone()
        rows[rows.nonzero()[:missed, 0]] = False
        # A point on the face of the rows that are left, inside all others.
        free = torch.linalg.svd(a[rows], full_matrices=True).Vh[int(rows.sum()) :].mT
        inward = (
            free
            @ torch.linalg.lstsq(
                a[near.rows & ~rows] @ free, torch.ones(missed).double()[:, None]
            ).solution
        )
        return near._replace(b=near.b + 1e-4 * inward[:, 0], rows=rows)

    monkeypatch.setattr(module, "_by_interior", careless)
    limit = natural_flow(x, y)
    assert (limit.solver, limit.unique) == (expected.solver, True)
    assert limit.basis.tolist() == expected.basis.tolist()
    assert_near(limit.solution, expected.solution, 1e-9)
    assert_near(limit.dual, expected.dual, 1e-9)


def test_highs_answers_where_the_interior_point_does_not(monkeypatch):
    x, y = separable(40, 6)
    expected = natural_flow(x, y)
    module = importlib.import_module("natgrad.limits._natural_flow")
    monkeypatch.setattr(module, "_by_interior", lambda a, c: None)
    limit = natural_flow(x, y)
    assert (limit.solver, limit.unique) == ("HiGHS", True)
    assert_near(limit.solution, expected.solution, 1e-9)
    assert limit.basis.tolist() == expected.basis.tolist()
