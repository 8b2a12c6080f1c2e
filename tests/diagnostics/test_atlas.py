"""Stationarity of homogeneous networks, margins in every norm, and rates."""

import math

import pytest
import torch

from natgrad import Bernoulli, DeepLinear, Diagonal, Direct, Network, euclidean, integrate
from natgrad.diagnostics import angle, fit_rate, kkt, margin, margin_fractions, norm_margin
from natgrad.errors import InvalidInputError, ShapeError
from natgrad.limits import max_margin, multiclass_max_margin
from natgrad.linalg.norms import Group, Lp, Nuclear, Spectral
from tests.helpers import F64, assert_near, for_each, module, randn
from tests.limits.data import separable

X, Y = separable(15, 6, seed=2)


# Karush, Kuhn and Tucker


def test_the_max_margin_is_stationary_and_others_are_not():
    limit = max_margin(X, Y)
    found = kkt(Direct(), limit.solution, X, Y, within=1e-6)
    assert found.residual < 1e-9
    assert_near(found.multipliers, limit.dual, 1e-7)
    assert found.margin == pytest.approx(limit.value, rel=1e-9)
    assert found.homogeneity < 1e-12
    other = max_margin(X, Y, math.inf).solution
    assert kkt(Direct(), other, X, Y, within=1e-6).residual > 0.1


def test_depth_makes_the_sparse_margin_stationary():
    """β = w₁w₂ with |w₁| = |w₂| of the ℓ1 margin."""
    beta = max_margin(X, Y, 1).solution
    w = torch.stack([beta.abs().sqrt(), beta.abs().sqrt() * beta.sign()])
    found = kkt(Diagonal(depth=2), w, X, Y, degree=2, within=1e-6)
    assert found.residual < 1e-8
    assert found.homogeneity < 1e-12
    dense = max_margin(X, Y).solution
    w = torch.stack([dense.abs().sqrt(), dense.abs().sqrt() * dense.sign()])
    assert kkt(Diagonal(depth=2), w, X, Y, degree=2, within=1e-6).residual > 0.01


def test_gradients_are_those_of_autograd_for_any_model():
    net = module(
        lambda: torch.nn.Sequential(
            torch.nn.Linear(6, 5, bias=False), torch.nn.ReLU(), torch.nn.Linear(5, 1, bias=False)
        )
    )
    model = Network(net)
    params = model.init()
    y = torch.sign(model.predict(params, X)[:, 0])
    found = kkt(model, params, X, y, degree=2)
    assert found.homogeneity < 1e-10
    weights = {k: v.clone().requires_grad_() for k, v in params.items()}
    outputs = torch.func.functional_call(net, weights, (X,))[:, 0]
    loss = torch.exp(-y * outputs).sum()
    grads = torch.autograd.grad(loss, list(weights.values()))
    flat = -torch.cat([g.flatten() for g in grads])
    theta = torch.cat([v.flatten() for v in params.values()])
    assert found.alignment == pytest.approx(float(flat @ theta / flat.norm() / theta.norm()))
    assert kkt(model, params, X, y, degree=3).homogeneity > 0.1


def test_gradient_flow_becomes_stationary():
    start = (0.3 * randn(3, 6, seed=0), 0.3 * randn(1, 3, seed=1))
    model, batch = DeepLinear((6, 3, 1)), (X, Y[:, None])
    ends = [
        integrate(euclidean, Bernoulli(), model, start, batch, until=t).final for t in (1e2, 1e8)
    ]
    early, late = (kkt(model, w, X, Y, degree=2).alignment for w in ends)
    assert 1 > late > early
    assert late > 0.99


def test_kkt_refuses_what_has_no_margin():
    with pytest.raises(InvalidInputError, match="classified correctly"):
        kkt(Direct(), -max_margin(X, Y).solution, X, Y)
    with pytest.raises(InvalidInputError, match="no direction"):
        kkt(Direct(), torch.zeros(6, dtype=F64), X, Y)
    with pytest.raises(ShapeError, match="one output"):
        kkt(Direct(), randn(6, 2, seed=0), X, Y)


# Margins in every norm


def test_margins_of_limits_are_their_values():
    for p in (1, 1.5, 2, 5, math.inf):
        limit = max_margin(X, Y, p)
        assert norm_margin(limit.solution, X, Y, p) == pytest.approx(limit.value, rel=1e-9)
        assert norm_margin(limit.solution, X, Y, p) == pytest.approx(
            float(margin(limit.solution, X, Y, p)), rel=1e-12
        )
    labels = (X @ randn(6, 3, seed=9)).argmax(1)
    for norm in (Lp(2), Spectral(), Nuclear(), Group("columns")):
        limit = multiclass_max_margin(X, labels, norm)
        assert norm_margin(limit.solution, X, labels, norm) == pytest.approx(limit.value, rel=1e-9)


def test_fractions_are_largest_in_the_norm_that_was_maximized():
    norms = [1, 2, math.inf]
    limits = {p: max_margin(X, Y, p) for p in norms}
    best = {p: limit.value for p, limit in limits.items()}
    for p in norms:
        found = margin_fractions(limits[p].solution, X, Y, best)
        assert found[p] == pytest.approx(1, rel=1e-9)
        assert all(share < 1 - 1e-3 for q, share in found.items() if q != p)
    with pytest.raises(InvalidInputError, match="other data"):
        margin_fractions(limits[2].solution, X, Y, {2: 0.5 * best[2]})


# Rates


def test_rates_of_exact_laws():
    t = torch.logspace(0.5, 5, 200, dtype=F64)
    cases = {
        "power": (t, 2 * t**-0.5, 0.5),
        "exponential": (t[:120], 3 * torch.exp(-0.01 * t[:120]), 0.01),
        "logarithmic": (t, 4 / t.log(), 1.0),
    }

    def check(law):
        times, gap, truth = cases[law]
        if law == "exponential":
            times = torch.linspace(0, 50, 100, dtype=F64)
            gap = 3 * torch.exp(-0.01 * times)
        rate = fit_rate(times, gap, law=law)
        assert rate.exponent == pytest.approx(truth, rel=1e-9)
        assert rate.high - rate.low < 1e-8
        assert abs(rate.drift) < 1e-8

    for_each(cases, check)


def test_intervals_cover_the_truth_of_noisy_laws_and_widen_for_wrong_ones():
    t = torch.logspace(0, 4, 200, dtype=F64)
    covered = 0
    for seed in range(200):
        rate = fit_rate(t, t**-0.5 * torch.exp(0.2 * randn(200, seed=seed)))
        covered += rate.low <= 0.5 <= rate.high
    assert 180 <= covered <= 199  # 95 % of 200, three standard deviations
    wrong = fit_rate(t[1:], 1 / t[1:].log1p(), law="power")
    assert wrong.high - wrong.low > 0.2
    assert wrong.drift < -0.1


def test_the_direction_of_gradient_flow_closes_in_with_its_length():
    """Soudry and others 2018: β = ‖β‖ b + O(1), so that the angle falls as 1/‖β‖."""
    times = torch.logspace(3, 9, 60, dtype=F64)
    run = integrate(
        euclidean, Bernoulli(), Direct(), torch.zeros(6, dtype=F64), (X, Y),
        until=1e9, times=times,
    )  # fmt: skip
    gap = angle(run.states, max_margin(X, Y).solution)
    rate = fit_rate(run.states.norm(dim=1), gap)
    assert rate.exponent == pytest.approx(1, abs=0.1)


def test_rates_refuse_what_has_none():
    t = torch.arange(1.0, 10.0)
    with pytest.raises(InvalidInputError, match="positive everywhere"):
        fit_rate(t, 0 * t)
    with pytest.raises(InvalidInputError, match="increase"):
        fit_rate(t.flip(0), t)
    with pytest.raises(ShapeError, match="two points"):
        fit_rate(t, t, windows=9)
