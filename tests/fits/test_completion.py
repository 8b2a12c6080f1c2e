"""Fits of an incomplete matrix, against CVXPY and dense algebra."""

import math
from dataclasses import replace

import cvxpy
import pytest
import torch

from natgrad.data.completion import low_rank
from natgrad.diagnostics import effective_rank
from natgrad.errors import InvalidInputError, NatgradError
from natgrad.fits import (
    Center,
    Entries,
    LowRankModel,
    fit_averaged,
    fit_nuclear_norm,
    fit_product,
    rmse,
)
from natgrad.fits._averaged import average
from natgrad.fits._product_flow import entries_of
from natgrad.fits._soft_impute import SoftImpute
from tests.helpers import assert_near, randn


def test_centering_by_means_takes_additive_effects_away():
    a, b = randn(30, seed=1), randn(25, seed=2)
    truth = 5 + a[:, None] + b[None, :]
    chosen = torch.rand(30, 25, generator=torch.Generator().manual_seed(3)) < 0.5
    entries = Entries((30, 25), chosen.nonzero(), truth[chosen])
    center = Center.of(entries, "means")
    assert center.unit < 0.25
    assert_near(center.at(entries.positions), center.everywhere()[chosen], 1e-14)
    back = center.standardized(entries).values * center.unit + center.at(entries.positions)
    assert_near(back, entries.values, 1e-12)
    assert Center.of(entries, "none").mean == 0


def test_effects_are_shrunk_by_their_estimated_variance():
    """Entries a + b + noise: λ is 0.64 / 0.25 for rows and 0.64 / 0.04 for columns."""
    a, b = 0.5 * randn(400, seed=1), 0.2 * randn(300, seed=2)
    chosen = torch.rand(400, 300, generator=torch.Generator().manual_seed(3)) < 0.05
    values = (a[:, None] + b[None, :] + 0.8 * randn(400, 300, seed=4))[chosen]
    entries = Entries((400, 300), chosen.nonzero(), values)
    center = Center.of(entries, "means")
    # The best linear prediction with known variances, by dense algebra.
    x = torch.zeros(len(values), 701, dtype=torch.float64)
    index = torch.arange(len(values))
    x[:, 0] = 1
    x[index, 1 + entries.positions[:, 0]] = 1
    x[index, 401 + entries.positions[:, 1]] = 1
    penalty = torch.tensor([0.0] + [0.64 / 0.25] * 400 + [0.64 / 0.04] * 300).double()
    best = torch.linalg.solve(x.mT @ x + torch.diag(penalty), x.mT @ values)
    assert float((center.rows - best[1:401]).norm() / best[1:401].norm()) < 0.1
    assert float((center.columns - best[401:]).norm() / best[401:].norm()) < 0.25


def test_an_average_is_that_of_the_matrices():
    entries = Entries((6, 5), torch.tensor([[0, 0], [1, 1], [2, 2], [4, 3]]), torch.arange(4.0))
    entries = replace(entries, values=entries.values.double())
    models = [
        LowRankModel(
            Center(1.0 + k, randn(6, seed=k), randn(5, seed=9 + k), 2.0 + k),
            randn(6, 2, seed=20 + k).float(),
            randn(2, 5, seed=30 + k).float(),
        )
        for k in range(2)
    ]
    found = average(models, [0.3, 0.7], entries)
    matrix, dense = found.matrix(), 0.3 * models[0].matrix() + 0.7 * models[1].matrix()
    known = torch.ones(6, 5, dtype=torch.bool)
    known[[3, 5]] = False
    known[:, 4] = False
    assert_near(matrix[known], dense[known], 1e-5)
    means = Center.of(entries, "means").everywhere().float()
    assert_near(matrix[~known], means[~known], 1e-6)  # cold rows and columns


def test_held_out_predictions_come_from_products_that_did_not_see_them(parts):
    _, entries, held_out = parts
    fit = fit_averaged(entries, center="none", hidden=30, folds=4, members=2)
    assert fit.index.unique().numel() == len(fit.index) == 226  # two of four folds
    first = fit.index[:113]
    rest = torch.ones(450, dtype=torch.bool)
    rest[first] = False
    order = torch.randperm(450, generator=torch.Generator().manual_seed(0))
    rest_in_order = order[rest[order]]
    alone = fit_product(
        entries.at(rest_in_order), center="none", hidden=30, held_out=entries.at(first)
    )
    assert_near(fit.held_out[:113], alone.model.predict(entries.positions[first]), 1e-6)
    assert rmse(fit.model.predict, held_out) < 0.3


@pytest.mark.parametrize(
    "name",
    ["center", "depth", "scale", "hidden", "seed", "folds", "members", "max_evaluations"],
)
def test_an_average_refuses_bad_arguments_in_a_sentence(parts, name):
    for value in ODD:
        with pytest.raises(NatgradError, match=name) as caught:
            fit_averaged(parts[1], **{name: value})
        assert "\n" not in str(caught.value)


def test_entries_that_means_explain_are_refused():
    entries = Entries((2, 2), torch.tensor([[0, 0], [1, 1]]), torch.ones(2).double())
    with pytest.raises(InvalidInputError, match="nothing to complete"):
        Center.of(entries, "mean")


def test_soft_impute_reaches_the_optimum_of_cvxpy():
    problem = low_rank(shape=(12, 9), rank=2, observed=60, seed=1)
    entries = Entries((12, 9), problem.positions, problem.values)
    solver = SoftImpute(entries, width=9, seed=0)
    assert solver.largest() == pytest.approx(
        float(torch.linalg.matrix_norm(torch.where(problem.observed, problem.truth, 0.0), 2)),
        rel=1e-4,
    )
    for penalty in (2.0, 0.5):
        left, right = solver.solve(penalty).halves()
        beta = (left @ right).double()
        value = 0.5 * problem.train_error(beta) * 60 + penalty * float(
            torch.linalg.matrix_norm(beta, "nuc")
        )
        b = cvxpy.Variable((12, 9))
        gap = cvxpy.multiply(problem.observed.double().numpy(), b - problem.truth.numpy())
        objective = 0.5 * cvxpy.sum_squares(gap) + penalty * cvxpy.normNuc(b)
        judge = cvxpy.Problem(cvxpy.Minimize(objective))
        judge.solve(solver="CLARABEL")
        assert value == pytest.approx(judge.value, rel=1e-3)


def test_predictions_and_spectra_without_the_matrix():
    left, right = randn(9, 3, seed=1), randn(3, 7, seed=2)
    where = torch.tensor([[0, 0], [8, 6], [4, 2]])
    whole = left @ right
    assert_near(entries_of(left, right, where), whole[where[:, 0], where[:, 1]], 1e-14)
    zero = torch.zeros(1, dtype=torch.float64)
    values = LowRankModel(Center(0.0, zero, zero, 1.0), left, right).singular_values()
    assert_near(values, torch.linalg.svdvals(whole)[:3], 1e-12)
    assert float(effective_rank(torch.diag(values))) == pytest.approx(
        float(effective_rank(whole)), rel=1e-9
    )


@pytest.fixture(scope="module")
def parts():
    problem = low_rank(shape=(40, 30), rank=2, observed=500, seed=0)
    entries = Entries((40, 30), problem.positions, problem.values)
    order = torch.randperm(500, generator=torch.Generator().manual_seed(0))
    return problem, entries.at(order[50:]), entries.at(order[:50])


# Row and column means raise the rank by two.
@pytest.mark.parametrize(("center", "bound"), [("none", 0.3), ("mean", 0.3), ("means", 0.45)])
def test_a_product_predicts_entries_it_did_not_see(parts, center, bound):
    problem, entries, held_out = parts
    fit = fit_product(entries, center=center, hidden=30, held_out=held_out)
    assert math.sqrt(problem.test_error(fit.model.matrix())) < bound
    errors = fit.model.center.unit * fit.curve[:, 1]
    assert rmse(fit.model.predict, held_out) == pytest.approx(float(errors.min()), rel=1e-5)
    assert_near(fit.model.predict(held_out.positions).float(), _at(fit, held_out), 1e-5)
    assert fit.model.singular_values().shape == (30,)


def _at(fit, entries):
    rows, columns = entries.positions.unbind(1)
    return fit.model.matrix()[rows, columns]


def test_a_product_is_the_same_again_up_to_the_time_found(parts):
    _, entries, held_out = parts
    one = fit_product(entries, hidden=30, held_out=held_out)
    assert one.time > 0
    two = fit_product(entries, hidden=30, until=one.time)
    assert len(two.curve) == 0
    assert_near(one.model.matrix(), two.model.matrix(), 5e-2)


def test_a_penalty_is_chosen_by_held_out_entries_or_given(parts):
    _, entries, held_out = parts
    chosen = fit_nuclear_norm(entries, width=30, held_out=held_out)
    given = fit_nuclear_norm(entries, width=30, penalty=chosen.penalty)
    assert given.penalty == chosen.penalty
    assert torch.equal(given.model.matrix(), chosen.model.matrix())
    for share in (2 * chosen.penalty, chosen.penalty / 2):
        other = fit_nuclear_norm(entries, width=30, penalty=share)
        assert rmse(chosen.model.predict, held_out) <= rmse(other.model.predict, held_out)
    with pytest.raises(InvalidInputError, match="either held_out"):
        fit_nuclear_norm(entries)


ODD = [None, "x", math.nan, -1, 1j, [], torch.ones(2), torch.ones(3, 2, device="meta"), object()]


@pytest.mark.parametrize(
    "name", ["center", "depth", "scale", "hidden", "seed", "held_out", "until", "max_evaluations"]
)
def test_a_product_refuses_bad_arguments_in_a_sentence(parts, name):
    for value in ODD[1 if name == "held_out" else 0 :]:
        with pytest.raises(NatgradError, match=name) as caught:
            fit_product(parts[1], **{name: value})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["center", "width", "seed", "held_out", "penalty", "tries"])
def test_the_nuclear_norm_refuses_bad_arguments_in_a_sentence(parts, name):
    given = {} if name in ("held_out", "penalty") else {"penalty": 0.5}
    for value in ODD[1:]:
        with pytest.raises(NatgradError, match=name) as caught:
            fit_nuclear_norm(parts[1], **given, **{name: value})
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"shape": (40,)}, "two positive integers"),
        ({"shape": (4, 4)}, "must lie in a matrix"),
        ({"positions": torch.zeros(3, 2)}, "must be int64"),
        ({"positions": torch.zeros(3, 2, dtype=torch.int64)}, "one for each value"),
        ({"values": torch.full((450,), math.nan)}, "must be finite"),
        ({"values": [1.0]}, "must be a torch.Tensor"),
    ],
)
def test_entries_that_cannot_be_fitted_are_refused(parts, change, words):
    with pytest.raises(NatgradError, match=words):
        fit_product(replace(parts[1], **change))
    with pytest.raises(NatgradError, match="to the same matrix as entries"):
        fit_product(parts[1], held_out=replace(parts[2], shape=(50, 50)))


def test_fits_do_not_depend_on_the_default_dtype():
    positions = (torch.arange(120).view(12, 10) % 3 > 0).nonzero()
    values = ((positions[:, 0] + 1.0) * (positions[:, 1] - 4.5)).double()
    entries = Entries((12, 10), positions, values)

    def both():
        by_norm = fit_nuclear_norm(entries, width=3, penalty=1 / 8).model.matrix()
        return by_norm, fit_averaged(entries, hidden=2, members=2).model.matrix()

    before = both()
    torch.set_default_dtype(torch.float64)
    try:
        after = both()
    finally:
        torch.set_default_dtype(torch.float32)
    for a, b in zip(before, after, strict=True):
        assert torch.equal(a, b)
