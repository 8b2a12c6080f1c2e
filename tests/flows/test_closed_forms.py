"""Flows without integration, against integrated ones."""

import math

import pytest
import scipy.optimize
import torch

import natgrad as ng
from natgrad.errors import LabelError
from natgrad.flows.closed_forms import (
    deep_linear_total,
    natural_flow_of_logistic_regression,
    natural_logits,
    singular_times,
)
from tests.cases import randn


def separable(n: int, d: int, seed: int = 0):
    draw = randn(seed)
    x, truth = draw(n, d), draw(d)
    return x, torch.sign(x @ truth)


@pytest.mark.parametrize(("n", "d"), [(5, 9), (9, 9), (30, 8), (60, 3)])
@pytest.mark.parametrize("start", ["zero", "random"])
def test_logistic_regression_against_a_tight_integration(n, d, start) -> None:
    x, y = separable(n, d)
    beta = torch.zeros(d, dtype=torch.float64) if start == "zero" else randn(3)(d)
    times = torch.tensor([0.3, 2.0, 15.0, 200.0], dtype=torch.float64)
    closed = natural_flow_of_logistic_regression(beta, (x, y), times)
    flow = ng.integrate(
        ng.natural, ng.Bernoulli(), ng.Direct(), beta, (x, y),
        until=200.0, times=times, method="dop853", rtol=1e-10, atol=1e-12, log_time=False,
    )  # fmt: skip
    for i in range(4):
        assert float((closed.at(i) - flow.at(i)).norm() / flow.at(i).norm()) < 1e-7


def test_the_gradient_decays_exponentially() -> None:
    """∇L(t) = e^{−t} ∇L(0), the definition of Newton's flow."""
    x, y = separable(30, 8)
    beta = 0.3 * randn(4)(8)
    times = torch.tensor([1.0, 5.0, 25.0], dtype=torch.float64)
    path = natural_flow_of_logistic_regression(beta, (x, y), times)
    start = ng.euclidean(ng.Bernoulli(), ng.Direct(), beta, (x, y))
    for i, t in enumerate(times.tolist()):
        now = ng.euclidean(ng.Bernoulli(), ng.Direct(), path.at(i), (x, y))
        assert torch.allclose(now, math.exp(-t) * start, rtol=1e-8)


@pytest.mark.parametrize(("n", "d"), [(30, 8), (25, 20), (6, 9)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_direction_tends_to_the_vertex_of_a_linear_program(n, d, seed) -> None:
    """min c·b subject to X̃ b ≥ 1, c = X̃ᵀσ(−u(0)); at times of 10¹² by no more than log t / t."""
    x, y = separable(n, d, seed)
    beta = 0.5 * randn(seed + 20)(d)
    path = natural_flow_of_logistic_regression(beta, (x, y), torch.tensor([1e12]).double())
    signed = y[:, None] * x
    c = signed.mT @ torch.sigmoid(-(signed @ beta))
    found = scipy.optimize.linprog(
        c.numpy(), A_ub=-signed.numpy(), b_ub=-torch.ones(n).numpy(), bounds=[(None, None)] * d
    )
    vertex = torch.from_numpy(found.x)
    if n < d:  # the program leaves the complement of the row space free
        vertex = torch.linalg.pinv(signed) @ (signed @ vertex)
    cosine = torch.nn.functional.cosine_similarity(path.final, vertex, dim=0)
    assert float(1 - cosine) < 1e-9


def test_logits_from_any_start() -> None:
    s, y = 5 * randn(1)(6), torch.sign(randn(2)(6))
    h = 1e-6
    velocity = (natural_logits(s, y, 2 + h) - natural_logits(s, y, 2 - h)) / (2 * h)
    now = natural_logits(s, y, 2.0)
    assert torch.allclose(velocity, y * (1 + torch.exp(-y * now)), rtol=1e-7)
    assert torch.allclose(natural_logits(s, y, 0.0), s)


@pytest.mark.parametrize("selection", ["min_norm", "equal_share"])
@pytest.mark.parametrize("widths", [(3, 3, 3), (3, 5, 4)])
def test_deep_linear_networks_go_straight(widths, selection) -> None:
    network = ng.DeepLinear(widths)
    w = network.init_orthogonal(generator=torch.Generator().manual_seed(2))
    draw = randn(5)
    x = draw(20, widths[0])
    shift = 0.3 * draw(widths[-1], widths[0])
    y = x @ (network.hypothesis(w) + shift).mT + 0.1 * draw(20, widths[-1])
    path = ng.integrate(
        ng.natural, ng.Gaussian(), network, w, (x, y), until=2.0, rtol=1e-9, selection=selection
    )
    optimum = torch.linalg.lstsq(x, y).solution.mT
    wanted = deep_linear_total(network.hypothesis(w), optimum, 2.0)
    assert torch.allclose(network.hypothesis(path.final), wanted, rtol=1e-6, atol=1e-8)
    floor = ng.Gaussian()(x @ optimum.mT, y)
    assert torch.allclose(
        (path.losses - floor) / (path.losses[0] - floor), torch.exp(-2 * path.times), rtol=1e-5
    )


def test_singular_times_are_where_the_determinant_vanishes() -> None:
    draw = randn(6)
    total, optimum = draw(4, 4), draw(4, 4)
    times = singular_times(total, optimum)
    for t in times.tolist():
        w = deep_linear_total(total, optimum, t)
        assert float(torch.linalg.svdvals(w).min()) < 1e-10


@pytest.mark.parametrize(("small", "large"), [(1e-310, 1.0), (1e-10, 1e300)])
def test_singular_times_where_the_quotient_overflows(small, large):
    draw = randn(1)
    total, other = draw(3, 3), draw(3, 3)
    plain = singular_times(total, -total + 0.01 * other)
    assert len(plain) > 0
    found = singular_times(small * total, large * (-total + 0.01 * other))
    # log(1 + r/μ) at r = small/large is r/μ, and 1/μ = e^t − 1 at r = 1.
    assert torch.allclose(found, small / large * torch.expm1(plain), rtol=1e-3, atol=0)


def test_labels_of_natural_logits_are_plus_and_minus_one():
    with pytest.raises(LabelError, match="one is 3"):
        natural_logits(torch.zeros(2), torch.tensor([1.0, 3.0]), 1.0)
