"""Several classes, penalties and weights, against theorems and scikit-learn."""

import math

import numpy as np
import pytest
import torch

from natgrad.errors import InvalidInputError, LabelError
from natgrad.fits import (
    balanced_rows,
    fit_classes,
    fit_penalty,
    fit_separator,
    log_probabilities,
    predicted,
)
from natgrad.limits import max_margin, multiclass_max_margin
from tests.helpers import assert_near, randn

STRENGTHS = torch.logspace(0, -3, 7, dtype=torch.float64)


def clouds(gap: float, n: int = 60, d: int = 4):
    y = 2.0 * (torch.arange(n) % 2).double() - 1
    x = randn(n, d, seed=1)
    x[:, 0] += gap * y
    x[:, -1] = 1.0
    return x, y


@pytest.mark.parametrize("p", [1, 2])
def test_penalties_are_those_of_scikit_learn(p):
    linear = pytest.importorskip("sklearn.linear_model")
    x, y = clouds(0.5)
    path = fit_penalty(p, x.flip(1), y, STRENGTHS, free=1)  # the constant comes first
    for strength, beta in zip(STRENGTHS.tolist(), path, strict=True):
        peer = linear.LogisticRegression(
            C=1 / (strength * len(x)),
            l1_ratio=2 - p,
            solver="saga" if p == 1 else "lbfgs",
            tol=1e-10,
            max_iter=100_000,
        ).fit(x[:, :-1].flip(1).numpy(), y.numpy())
        assert_near(beta[1:], torch.from_numpy(peer.coef_[0]), 2e-4)
        theirs = torch.from_numpy(np.append(peer.intercept_, peer.coef_))

        def value(b, strength=strength):
            size = b[1:].abs().sum() if p == 1 else b[1:] @ b[1:] / 2
            return torch.nn.functional.softplus(-y * (x.flip(1) @ b)).mean() + strength * size

        assert float(value(beta)) <= float(value(theirs)) + 1e-12


def test_optimality_along_the_path_of_a_sparse_penalty():
    x, y = clouds(0.7)
    for strength, beta in zip(STRENGTHS, fit_penalty(1, x, y, STRENGTHS), strict=True):
        slope = -(y * torch.sigmoid(-y * (x @ beta))) @ x / len(x)
        assert float((slope.abs() - strength).max()) < 1e-6
        active = beta != 0
        assert_near(slope[active], -strength * beta[active].sign(), 1e-4)


def test_a_weak_penalty_tends_to_the_max_margin():
    x, y = clouds(4.0)
    weak = torch.logspace(0, -8, 17, dtype=torch.float64)
    for p in (1, 2):
        beta, limit = fit_penalty(p, x, y, weak)[-1], max_margin(x, y, p).solution
        assert float(torch.cosine_similarity(beta, limit, dim=0)) > 0.99


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"p": 3}, "p must be an integer"),
        ({"strengths": STRENGTHS.flip(0)}, "positive and decreasing"),
        ({"strengths": -STRENGTHS}, "positive and decreasing"),
        ({"free": 9}, "free must be an integer"),
        ({"y": torch.zeros(60, dtype=torch.float64)}, "labels -1 and 1"),
    ],
)
def test_bad_penalties(change, words):
    x, y = clouds(1.0)
    with pytest.raises(InvalidInputError, match=words):
        fit_penalty(**({"p": 2, "x": x, "y": y, "strengths": STRENGTHS} | change))


def three(gap: float = 3.0, n: int = 45):
    labels = torch.arange(n) % 3
    centers = gap * torch.tensor([[1.0, 0], [-0.5, 0.9], [-0.5, -0.9]], dtype=torch.float64)
    return randn(n, 2, seed=2) * 0.4 + centers[labels], labels


def test_two_classes_are_one_separator():
    x, y = clouds(2.0)
    labels = (y > 0).long()
    for method in ("EGD L=2", "NGD", "least squares", "ℓ1 max margin"):
        found = fit_classes(method, x, labels, 2, until=100.0)
        alone = fit_separator(method, x, y, until=100.0).beta
        assert torch.equal(found.beta[0].nan_to_num(), alone.nan_to_num())


def test_more_classes_have_joint_margins_and_one_separator_each():
    x, labels = three()
    joint = fit_classes("ℓ2 max margin", x, labels, 3).beta
    assert torch.equal(joint, multiclass_max_margin(x, labels, 2).solution)
    each = fit_classes("NGD", x, labels, 3, times=torch.tensor([1.0, 5.0]).double())
    signs = torch.where(labels == 1, 1.0, -1.0).double()
    assert torch.equal(each.beta[1], fit_separator("NGD", x, signs).beta)
    assert each.path.shape == (2, 3, 2)
    for method in ("EGD L=1", "EGD L=2", "NGD", "ℓ1 max margin", "limit of NGD"):
        beta = fit_classes(method, x, labels, 3, until=1e4).beta
        assert torch.equal(predicted(x @ beta.mT), labels), method


def test_classes_that_overlap_have_no_joint_margin():
    x, labels = three(gap=0.1)
    assert fit_classes("ℓ2 max margin", x, labels, 3).beta.isnan().all()


def test_paths_pass_through_what_ends_there():
    x, y = clouds(1.0)
    times = torch.tensor([1.0, 10.0, 50.0, 200.0]).double()
    for method in ("EGD L=1", "EGD L=3"):
        found = fit_separator(method, x, y, until=50.0, times=times)
        assert torch.equal(found.path[2], found.beta)
        assert torch.equal(found.path[3], found.beta)  # after the end
        early = fit_separator(method, x, y, until=10.0).beta
        assert_near(found.path[1], early, 2e-2)
    with pytest.raises(InvalidInputError, match="times must be positive and increasing"):
        fit_separator("NGD", x, y, times=times.flip(0))
    with pytest.raises(InvalidInputError, match="needs times"):
        fit_classes("ℓ1 penalty", x, (y > 0).long(), 2)


def test_probabilities_sum_to_one_also_far_out():
    scores = torch.tensor([[-800.0], [0.3], [900.0]]).double()
    two = log_probabilities(scores)
    assert_near(two.exp().sum(1), torch.ones(3).double(), 1e-15)
    assert_near(two[:, 1], -torch.nn.functional.softplus(-scores[:, 0]), 1e-12)
    more = log_probabilities(torch.tensor([[1.0, -2.0, 0.0], [-500.0, -600.0, -700.0]]).double())
    assert_near(more.exp().sum(1), torch.ones(2).double(), 1e-14)
    share = torch.sigmoid(torch.tensor([1.0, -2.0, 0.0]).double())
    assert_near(more[0].exp(), share / share.sum(), 1e-14)


@pytest.mark.parametrize("counts", [(10, 10), (62, 38), (90, 10), (100, 3), (50, 30, 7)])
def test_balanced_rows_give_every_class_about_the_same_sum(counts):
    labels = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    sums = torch.bincount(labels[balanced_rows(labels, len(counts))]).double()
    assert float(sums.max() / sums.min()) < 1.25
    assert len(set(balanced_rows(labels, len(counts)).tolist())) == len(labels)  # none is lost


def test_repeated_rows_are_weights():
    x, y = clouds(0.5)
    weight = np.where(y.numpy() > 0, 3.0, 1.0)
    again = torch.arange(len(x)).repeat_interleave(torch.from_numpy(weight).long())
    beta = fit_classes("limit of NGD", x[again], (y[again] > 0).long(), 2).beta[0]
    slope = (torch.from_numpy(weight) * y * torch.sigmoid(-y * (x @ beta))) @ x
    assert float(slope.abs().max()) < 1e-8  # the optimum of the weighted loss


def test_bad_labels():
    x, labels = three()
    with pytest.raises(LabelError, match="from 0 to 1"):
        fit_classes("NGD", x, labels, 2)
    with pytest.raises(InvalidInputError, match="classes must be an integer"):
        fit_classes("NGD", x, labels, 1)
    assert math.isnan(fit_classes("NGD", x, labels, 3).early)


def test_coupling_leads_from_shares_to_softmax():
    scores = torch.tensor([[5.0, -0.5, -5.0], [0.1, 0.3, -0.2]]).double()
    odds = log_probabilities(scores, coupling=1.0)
    assert_near(odds, torch.log_softmax(scores, 1), 1e-14)
    p = torch.sigmoid(scores)
    half = p / (1 - p).sqrt()
    assert_near(log_probabilities(scores, coupling=0.5).exp(), half / half.sum(1, True), 1e-14)


def test_coupling_fixes_a_class_between_others():
    # The middle class is not separable from the rest, so its own score says nothing anywhere.
    x = torch.linspace(-3, 3, 60, dtype=torch.float64)
    design = torch.stack([torch.ones_like(x), x], 1)
    labels = (x > -1).long() + (x > 1).long()
    found = fit_classes("ℓ2 penalty", design, labels, 3, times=torch.tensor([1e3]).double(), free=1)
    scores = design @ found.beta.mT
    sure = [log_probabilities(scores, coupling=c).exp().amax(1).mean() for c in (0.0, 1.0)]
    right = (predicted(scores) == labels).double().mean()
    assert abs(right - sure[1]) < 0.5 * abs(right - sure[0])
