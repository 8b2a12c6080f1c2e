import math

import cvxpy
import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from sklearn.svm import LinearSVC

from natgrad.data.separable import planar
from natgrad.errors import UnsupportedError
from natgrad.limits import SeparabilityError, max_margin
from natgrad.limits._solvers.interior import interior_point
from natgrad.limits._solvers.programs import OneNorm
from tests.helpers import DTYPES, F64, assert_near, pinv, randn
from tests.limits.data import deficient, not_separable, quasi, separable, signed

DATA = {
    "wide": separable(20, 50),
    "square": separable(30, 30),
    "tall": separable(80, 12),
    "deficient-tall": deficient(60, 20, 6),
    "deficient-wide": deficient(20, 60, 6),
    "one-sample": separable(1, 4),
    "duplicates": tuple(torch.cat([t, t]) for t in separable(20, 6)),
}


def recomputed_gap(x, y, limit, p):
    """Weak duality, from the data and the two vectors alone."""
    a, b, lam = signed(x, y), limit.solution, limit.dual
    assert bool((lam >= 0).all())
    margin = float((a @ b).min() / torch.linalg.vector_norm(b, p))
    bound = float(torch.linalg.vector_norm(a.mT @ lam, math.inf if p == 1 else 2) / lam.sum())
    assert limit.value == pytest.approx(margin, rel=1e-9)
    return (bound - margin) / bound


def by_cvxpy(x, y, p):
    b = cvxpy.Variable(x.shape[1])
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.norm(b, p)), [cvxpy.multiply(y.numpy(), x.numpy() @ b) >= 1]
    )
    problem.solve(solver="CLARABEL")
    return torch.as_tensor(b.value), problem.value


def by_highs(x, y):
    a, d = signed(x, y).numpy(), x.shape[1]
    answer = linprog(np.ones(2 * d), A_ub=np.hstack([-a, a]), b_ub=-np.ones(len(a)), method="highs")
    assert answer.status == 0
    return torch.as_tensor(answer.x[:d] - answer.x[d:]), answer.fun


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("name", DATA)
def test_gap_recomputed_and_value_of_clarabel(name, p):
    x, y = DATA[name]
    limit = max_margin(x, y, p)
    assert limit.certificate <= 1e-9
    assert abs(recomputed_gap(x, y, limit, p)) < 1e-9
    b, norm = by_cvxpy(x, y, p)
    assert limit.value == pytest.approx(1 / norm, rel=1e-6)
    if p == 2:
        assert_near(limit.solution, b, 1e-4)


@pytest.mark.parametrize("shape", [(20, 50), (40, 40), (90, 15)], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_one_norm_is_the_vertex_of_highs(shape, seed):
    x, y = separable(*shape, seed=seed)
    limit = max_margin(x, y, 1)
    b, norm = by_highs(x, y)
    assert limit.value == pytest.approx(1 / norm, rel=1e-10)
    assert_near(limit.solution, b, 1e-8)
    assert int((limit.solution != 0).sum()) == len(limit.basis)  # a vertex


def test_two_norm_agrees_with_liblinear():
    x, y = separable(60, 5, seed=4)
    svm = LinearSVC(C=1e6, loss="hinge", fit_intercept=False, tol=1e-10, max_iter=10_000_000)
    svm.fit(x.numpy(), y.numpy())
    b, ours = torch.as_tensor(svm.coef_[0]), max_margin(x, y).solution
    assert_near(b / b.norm(), ours / ours.norm(), 1e-3)


def test_two_norm_lies_in_the_span_of_its_support():
    x, y = DATA["deficient-wide"]
    limit = max_margin(x, y)
    inside = pinv(x) @ x
    assert_near(inside @ limit.solution, limit.solution, 1e-10)
    assert_near(signed(x, y).mT @ limit.dual, limit.solution, 1e-9)
    assert_near((signed(x, y) @ limit.solution)[limit.basis], torch.ones(len(limit.basis)).to(F64))


def test_closed_form_in_the_plane():
    x = torch.tensor([[1.0, 2.0], [1.2, 0.5]], dtype=F64)
    limit = max_margin(x, torch.ones(2, dtype=F64))
    # The nearer point alone supports: b = x₂/‖x₂‖².
    assert_near(limit.solution, x[1] / x[1].square().sum(), 1e-12)
    assert limit.basis.tolist() == [1]


@pytest.mark.parametrize("p", [1, 2, 2 / 3])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_scale_of_the_data(scale, p):
    x, y = DATA["tall"]
    assert_near(max_margin(scale * x, y, p).solution * scale, max_margin(x, y, p).solution, 1e-9)


@pytest.mark.parametrize("name", ["wide", "tall", "deficient-tall"])
@pytest.mark.parametrize("p", [2 / 3, 1 / 2])
def test_quasi_norm_is_stationary_and_no_worse_than_convex_ones(name, p):
    x, y = DATA[name]
    limit = max_margin(x, y, p)
    assert limit.local
    assert limit.certificate < 1e-9
    assert limit.value == pytest.approx(max(limit.starts), rel=1e-9)
    a, b, lam = signed(x, y), limit.solution, limit.dual
    inner = b[b != 0]
    slope = p * inner.abs() ** (p - 1) * inner.sign()
    assert_near(a[:, b != 0].mT @ lam, slope, 1e-9)
    assert float((a @ b).min()) > 1 - 1e-9
    assert float((lam * (a @ b - 1)).abs().max()) < 1e-9 * float(lam.max())
    for q in (1, 2):
        other = max_margin(x, y, q).solution
        theirs = float((a @ other).min() / other.abs().pow(p).sum() ** (1 / p))
        assert limit.value >= theirs * (1 - 1e-12)


def test_quasi_norm_finds_the_global_minimum_among_all_vertices_of_a_small_problem():
    x, y = separable(12, 3, seed=5)
    a, p = signed(x, y), 0.5
    best = 0.0
    planes = torch.cat([a, torch.eye(3, dtype=F64)])
    ones = torch.cat([torch.ones(12), torch.zeros(3)]).to(F64)
    for i in range(15):
        for j in range(i):
            for k in range(j):
                rows = [i, j, k]
                if abs(float(torch.linalg.det(planes[rows]))) > 1e-9:
                    b = torch.linalg.solve(planes[rows], ones[rows])
                    if float((a @ b).min()) > 1 - 1e-9:
                        norm = float(b.abs().pow(p).sum() ** (1 / p))
                        best = max(best, 1 / norm)
    assert max_margin(x, y, p, starts=8).value == pytest.approx(best, rel=1e-9)


def test_starts_are_reproducible():
    x, y = DATA["wide"]
    first, again = (max_margin(x, y, 0.5, seed=3) for _ in range(2))
    assert torch.equal(first.solution, again.solution)
    assert len(max_margin(x, y, 0.5, starts=2).starts) == 2


@pytest.mark.parametrize("p", [1, 2, 0.5])
@pytest.mark.parametrize(
    ("data", "kind", "hint"),
    [
        (quasi(30, 6), "quasi-separable", "natural_flow"),
        (not_separable(40, 5), "not separable", "finite minimizer"),
    ],
    ids=["quasi", "not"],
)
def test_other_kinds_are_refused_with_the_proof(data, kind, hint, p):
    with pytest.raises(SeparabilityError, match=hint) as caught:
        max_margin(*data, p)
    assert caught.value.found.kind == kind
    assert isinstance(caught.value, UnsupportedError)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("p", [1, 2, 0.5])
def test_dtype_is_kept(p, dtype):
    x, y = (t.to(dtype) for t in separable(30, 6))
    limit = max_margin(x, y, p)
    assert limit.solution.dtype == limit.dual.dtype == dtype
    assert limit.seconds > 0


def test_both_sides_of_the_interior_point_agree():
    x, y = separable(25, 25, seed=6)
    a = signed(x, y)
    one = torch.ones(25, dtype=F64)
    last = interior_point(OneNorm(a, one, one))
    b = last.x[:25] - last.x[25:]
    assert last.error < 1e-9
    assert_near(b, max_margin(x, y, 1).solution, 1e-7)


@pytest.mark.slow
@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("n", [1000, 2500])
def test_full_size(n, p):
    x, y = separable(n, 1000)
    limit = max_margin(x, y, p)
    assert abs(recomputed_gap(x, y, limit, p)) < 1e-9


@pytest.mark.parametrize("p", [1, 2, 0.5])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", ["rows", "columns"])
def test_rows_and_columns_of_very_different_size(sizes, seed, p):
    """Margins near 1e-7: the usual start fails on some of these, one from inside does not."""
    x, _ = separable(40, 12, seed=seed)
    if sizes == "rows":
        x = x * torch.exp(2 * randn(40, 1, seed=seed + 20))
    else:
        x = x * torch.logspace(-3, 3, 12, dtype=F64)
    y = torch.sign(x @ randn(12, seed=seed + 30))
    limit = max_margin(x, y, p)
    assert limit.certificate <= 1e-9
    if p >= 1:
        assert abs(recomputed_gap(x, y, limit, p)) < 1e-8


@pytest.mark.parametrize("p", [0.5, 2 / 3])
def test_a_feature_that_separates_alone_is_a_candidate(p: float) -> None:
    x, y = planar(40).batch  # reweighted ℓ1 ends elsewhere, at a smaller margin
    limit = max_margin(x, y, p)
    alone = torch.tensor([1.0, 0.0], dtype=F64)
    assert limit.value >= float((y * (x @ alone)).min()) * (1 - 1e-12)
    assert limit.certificate < 1e-9
