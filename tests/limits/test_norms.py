"""Margins in every norm: gaps from data and two vectors alone, values of CVXPY and HiGHS."""

import math
from itertools import pairwise

import cvxpy
import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from sklearn.datasets import load_digits

from natgrad import Bernoulli, Categorical, Direct, descend, euclidean
from natgrad.errors import InvalidInputError, LabelError, ShapeError, UnsupportedError
from natgrad.flows import normalized
from natgrad.limits import (
    SeparabilityError,
    certify,
    gradient_weights,
    max_margin,
    multiclass_max_margin,
)
from natgrad.linalg.norms import Group, Lp, Metric, Norm, Nuclear, Spectral
from natgrad.stopping import steps_reached
from tests.helpers import DTYPES, F64, assert_near, for_each, randn
from tests.limits.data import deficient, not_separable, separable, signed

POWERS = [1, 1.02, 1.2, 1.5, 1.9, 2, 2.1, 3, 10, 200, math.inf]
DATA = {
    "wide": separable(15, 30),
    "square": separable(20, 20),
    "tall": separable(60, 8),
    "deficient": deficient(40, 15, 5),
    "one-sample": separable(1, 4),
    "many": separable(900, 5),
}


def classes(n, d, k, seed=0):
    x = randn(n, d, seed=seed)
    return x, (x @ randn(k, d, seed=seed + 100).mT).argmax(1)


def pairs(x, y, k):
    """The rows (e_y − e_c) xᵀ, one by one."""
    rows = []
    for n in range(len(x)):
        for c in range(k):
            if c != y[n]:
                row = torch.zeros(k, x.shape[1], dtype=F64)
                row[y[n]] += x[n]
                row[c] -= x[n]
                rows.append(row)
    return torch.stack(rows)


def metric(d):
    a = randn(d, d, seed=9)
    return Metric(a @ a.mT / d + 0.1 * torch.eye(d, dtype=F64))


def gap(rows, beta, lam, norm):
    """Weak duality, whatever solved the program."""
    assert bool((lam >= 0).all())
    margin = float((rows.flatten(1) @ beta.flatten()).min()) / norm(beta)
    pulled = torch.einsum("n...,n->...", rows, lam)
    return margin, (norm.dual()(pulled) / float(lam.sum()) - margin) / margin


def by_cvxpy(rows, norm, shape):
    b = cvxpy.Variable(shape)
    length = {
        "Lp": lambda: cvxpy.norm(cvxpy.vec(b, order="C"), getattr(norm, "p", 2)),
        "Spectral": lambda: cvxpy.sigma_max(b),
        "Nuclear": lambda: cvxpy.normNuc(b),
        "Metric": lambda: cvxpy.norm(b @ np.linalg.cholesky(norm.a.numpy()), "fro"),
        "Group": lambda: _grouped(b, norm, shape),
    }[type(norm).__name__]()
    flat = rows.flatten(1).numpy()
    problem = cvxpy.Problem(cvxpy.Minimize(length), [flat @ cvxpy.vec(b, order="C") >= 1])
    problem.solve(solver="CLARABEL")
    return 1 / problem.value


def _grouped(b, norm, shape):
    numbers, flat = norm.numbers(shape).numpy(), cvxpy.vec(b, order="C")
    lengths = [cvxpy.norm(flat[np.flatnonzero(numbers == g)]) for g in range(numbers.max() + 1)]
    return sum(lengths) if norm.p == 1 else cvxpy.max(cvxpy.hstack(lengths))


# Two classes


def test_every_power_of_every_kind_of_data_is_certified():
    def check(case):
        name, p = case
        x, y = DATA[name]
        limit = max_margin(x, y, p)
        margin, found = gap(signed(x, y), limit.solution, limit.dual, Lp(p))
        assert limit.value == pytest.approx(margin, rel=1e-12)
        assert abs(found) < 1e-9
        assert float((signed(x, y) @ limit.solution).min()) == pytest.approx(1, rel=1e-9)

    for_each([(name, p) for name in DATA for p in POWERS], check)


@pytest.mark.parametrize("p", [1.5, 3, math.inf])
def test_powers_against_clarabel(p):
    x, y = DATA["tall"]
    truth = by_cvxpy(signed(x, y), Lp(p), (8,))
    assert max_margin(x, y, p).value == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("shape", [(20, 40), (60, 10)], ids=str)
def test_the_largest_entry_against_highs(shape):
    x, y = separable(*shape, seed=2)
    a, (n, d) = signed(x, y).numpy(), shape
    one = np.ones((d, 1))
    box = np.vstack([np.hstack([np.eye(d), -one]), np.hstack([-np.eye(d), -one])])
    answer = linprog(
        np.eye(d + 1)[d],
        A_ub=np.vstack([np.hstack([-a, np.zeros((n, 1))]), box]),
        b_ub=np.concatenate([-np.ones(n), np.zeros(2 * d)]),
        bounds=(None, None),
        method="highs",
    )
    assert max_margin(x, y, math.inf).value == pytest.approx(1 / answer.fun, rel=1e-10)


def test_powers_interpolate_between_their_neighbours():
    x, y = DATA["square"]
    norms = [1 / max_margin(x, y, p).value for p in POWERS]
    assert all(a > b for a, b in pairwise(norms))  # ‖·‖_p falls with p
    assert norms[1] == pytest.approx(norms[0], rel=0.05)
    assert norms[-2] == pytest.approx(norms[-1], rel=0.05)


def test_groups_and_metrics_of_features():
    x, y = DATA["square"]
    groups = torch.arange(20) // 3
    for norm in (Group(groups, 1), Group(groups, math.inf), metric(20)):
        limit = max_margin(x, y, norm)
        assert abs(gap(signed(x, y), limit.solution, limit.dual, norm)[1]) < 1e-8
        if isinstance(norm, Group):
            assert limit.value == pytest.approx(by_cvxpy(signed(x, y), norm, (20,)), rel=1e-6)
    singles = torch.arange(20)
    assert max_margin(x, y, Group(singles, 1)).value == pytest.approx(
        max_margin(x, y, 1).value, rel=1e-8
    )
    assert max_margin(x, y, Group(torch.zeros(20, dtype=torch.int64))).value == pytest.approx(
        max_margin(x, y, 2).value, rel=1e-8
    )


def test_a_metric_is_a_change_of_features():
    x, y = DATA["tall"]
    norm = metric(8)
    root = torch.linalg.cholesky(norm.a)
    plain = max_margin(x @ torch.linalg.inv(root).mT, y)
    assert_near(max_margin(x, y, norm).solution @ root, plain.solution, 1e-9)


# Several classes


def multiclass_norms(d) -> dict[str, Norm]:
    return {
        "sum": Lp(1),
        "1.5": Lp(1.5),
        "frobenius": Lp(2),
        "4": Lp(4),
        "max": Lp(math.inf),
        "spectral": Spectral(),
        "nuclear": Nuclear(),
        "rows": Group("rows", 1),
        "rows-max": Group("rows", math.inf),
        "columns": Group("columns", 1),
        "columns-max": Group("columns", math.inf),
        "metric": metric(d),
    }


@pytest.mark.parametrize("shape", [(10, 12, 3), (40, 5, 4)], ids=str)
def test_multiclass_margins_in_every_norm(shape):
    _, d, k = shape
    x, y = classes(*shape)
    rows = pairs(x, y, k)
    wrong = torch.nn.functional.one_hot(y, k) == 0

    def check(name):
        norm = multiclass_norms(d)[name]
        limit = multiclass_max_margin(x, y, norm, classes=k)
        assert limit.solution.shape == (k, d)
        assert float(limit.dual[~wrong].abs().max()) == 0
        margin, found = gap(rows, limit.solution, limit.dual[wrong], norm)
        assert limit.value == pytest.approx(margin, rel=1e-12)
        assert abs(found) < 1e-8
        assert limit.value == pytest.approx(by_cvxpy(rows, norm, (k, d)), rel=1e-6)

    for_each(multiclass_norms(d), check)


def test_two_classes_are_the_binary_margin():
    x, y = DATA["tall"]
    limit = multiclass_max_margin(x, (y > 0).long())
    binary = max_margin(x, y)
    assert_near(limit.solution[1] - limit.solution[0], binary.solution, 1e-9)
    assert_near(limit.solution.sum(0), torch.zeros(8, dtype=F64), 1e-12)
    assert limit.value == pytest.approx(binary.value * 2**0.5, rel=1e-9)  # ‖β‖² = ‖b‖²/2
    assert multiclass_max_margin(x, (y > 0).long(), math.inf).value == pytest.approx(
        2 * max_margin(x, y, math.inf).value, rel=1e-9
    )


def test_unused_classes_get_weights_too():
    x, y = classes(12, 6, 3)
    limit = multiclass_max_margin(x, y, classes=5)
    assert limit.solution.shape == (5, 6)
    rows = pairs(x, y, 5)
    wrong = torch.nn.functional.one_hot(y, 5) == 0
    assert gap(rows, limit.solution, limit.dual[wrong], Lp(2))[1] < 1e-9


@pytest.mark.slow
def test_digits_by_rows_in_four_norms():
    table = load_digits()
    x, y = torch.from_numpy(table.data[:300]) / 16, torch.from_numpy(table.target[:300])
    wrong = torch.nn.functional.one_hot(y, 10) == 0
    rows = torch.nn.functional.one_hot(y, 10)[:, None, :] - torch.eye(10, dtype=torch.int64)

    def check(norm):
        limit = multiclass_max_margin(x, y, norm)
        values = (limit.solution[y] * x).sum(1, keepdim=True) - x @ limit.solution.mT
        margin = float(values[wrong].min()) / norm(limit.solution)
        pulled = torch.einsum("nc,nck,nd->kd", limit.dual, rows.to(F64), x)
        bound = norm.dual()(pulled) / float(limit.dual.sum())
        assert (bound - margin) / margin < 1e-8

    for_each([Lp(1), Lp(2), Lp(math.inf), Spectral()], check)


# What is refused, and what is kept


def test_labels_and_norms_that_do_not_fit():
    x, y = classes(12, 6, 3)
    with pytest.raises(LabelError, match="0…1"):
        multiclass_max_margin(x, y, classes=2)
    with pytest.raises(InvalidInputError, match="integer classes"):
        multiclass_max_margin(x, y.double())
    with pytest.raises(UnsupportedError, match="multiclass_max_margin"):
        max_margin(*DATA["tall"], Spectral())
    with pytest.raises(ShapeError, match="need a matrix"):
        max_margin(*DATA["tall"], Group("rows"))
    with pytest.raises(ShapeError, match="5 features"):
        max_margin(*DATA["tall"], metric(5))

    class Foreign(Norm):
        def dual(self):
            return self

        def _length(self, b):
            return float(b.norm())

        def _peak(self, g):
            return g / g.norm()

    with pytest.raises(UnsupportedError, match="certify"):
        max_margin(*DATA["tall"], Foreign())


def test_data_that_cannot_be_separated():
    x, y = not_separable(40, 4)
    for p in (1.5, 3, math.inf, Group(torch.tensor([0, 0, 1, 1]))):
        with pytest.raises(SeparabilityError):
            max_margin(x, y, p)
    twice = torch.cat([randn(3, 2, seed=0)] * 2)
    for p in (2, math.inf, Spectral(), Nuclear()):
        with pytest.raises(SeparabilityError):
            multiclass_max_margin(twice, torch.tensor([0, 1, 2, 1, 2, 0]), p)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_and_scale(dtype):
    x, y = classes(12, 6, 3)
    limit = multiclass_max_margin(x.to(dtype), y, Spectral())
    assert limit.solution.dtype == limit.dual.dtype == dtype
    small = multiclass_max_margin(2.0**-20 * x, y, Spectral())
    assert_near(2.0**-20 * small.solution, multiclass_max_margin(x, y, Spectral()).solution, 1e-12)


# Certificates without a solver


def test_the_dual_of_a_limit_certifies_it():
    x, y = DATA["tall"]
    for p in (1, 1.5, 2, math.inf):
        limit = max_margin(x, y, p)
        found = certify(limit.solution, limit.dual, x, y, p)
        assert found.fraction == pytest.approx(1, abs=1e-9)
        assert found.margin == pytest.approx(limit.value, rel=1e-9)
    x, y = classes(12, 6, 3)
    limit = multiclass_max_margin(x, y, Nuclear())
    assert certify(limit.solution, limit.dual, x, y, Nuclear()).fraction > 1 - 1e-8


def test_no_weights_prove_too_little():
    x, y = DATA["tall"]

    def check(seed):
        lam = randn(60, seed=seed).abs()
        for p in (1, 1.5, 2, 3, math.inf):
            found = certify(randn(8, seed=seed), lam, x, y, p)
            assert found.bound >= max_margin(x, y, p).value * (1 - 1e-12)
            assert found.margin <= max_margin(x, y, p).value * (1 + 1e-12)

    for_each(range(5), check)


def test_averaged_gradient_weights_certify_a_descent_by_themselves():
    x, y = DATA["wide"]
    run = descend(
        euclidean, Bernoulli(), Direct(), torch.zeros(30, dtype=F64), (x, y),
        step=normalized(0.5, grow=1.0), until=steps_reached(3000), save_every=3,
    )  # fmt: skip
    weights = [gradient_weights(Bernoulli(), x @ b, y) for b in run.states]
    found = certify(run.final, torch.stack(weights).mean(0), x, y)
    truth = max_margin(x, y).value
    assert found.margin <= truth <= found.bound
    assert found.fraction > 0.97
    single = certify(run.final, weights[-1], x, y)
    assert single.bound >= truth


def test_gradient_weights_are_those_of_autograd():
    x, y = classes(12, 6, 3)
    beta = randn(3, 6, seed=5).requires_grad_()
    loss = torch.nn.functional.cross_entropy(x @ beta.mT, y)
    (gradient,) = torch.autograd.grad(loss, beta)
    lam = gradient_weights(Categorical(), (x @ beta.mT).detach(), y)
    rows = pairs(x, y, 3)
    pulled = torch.einsum("nkd,n->kd", rows, lam[torch.nn.functional.one_hot(y, 3) == 0])
    assert_near(pulled / pulled.norm(), -gradient / gradient.norm(), 1e-12)


def test_certificates_refuse_what_proves_nothing():
    x, y = DATA["tall"]
    one = torch.ones(60, dtype=F64)
    wrong = [(torch.zeros(8).double(), one), (one[:8], 0 * one), (one[:8], -one), (one[:7], one)]
    for beta, weights in wrong:
        with pytest.raises(InvalidInputError):
            certify(beta, weights, x, y)
