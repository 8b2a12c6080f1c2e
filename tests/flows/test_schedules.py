"""Damping that changes along the way, against identities and against dense integration."""

import math

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from natgrad import Bernoulli, Diagonal, Direct, descend, diagnostics, integrate, natural
from natgrad.errors import InvalidInputError
from natgrad.flows import DampingSchedule, decaying_damping, loss_damping
from natgrad.stopping import steps_reached
from tests.helpers import F64, assert_near, for_each, randn
from tests.limits.data import separable, signed


def gradient(beta, x, y):
    return Bernoulli().gradient(x @ beta, y) @ x


@pytest.mark.parametrize("shape", [(12, 20), (25, 6)], ids=str)
def test_decaying_damping_is_a_ridge_path(shape):
    """−eᵗ∇L(β(t)) + ∇L(β₀) = λ₀ (β(t) − β₀), along the whole flow."""
    x, y = separable(*shape, seed=1)
    start = 0.3 * randn(shape[1], seed=2)

    def check(strength):
        run = integrate(
            natural, Bernoulli(), Direct(), start, (x, y), until=6.0,
            times=torch.tensor([0.5, 2.0, 6.0], dtype=F64), rtol=1e-11, atol=1e-12,
            damping=decaying_damping(strength),
        )  # fmt: skip
        first = gradient(start, x, y)
        for t, beta in zip(run.times, run.states, strict=True):
            pushed = first - math.exp(float(t)) * gradient(beta, x, y)
            assert_near(pushed, strength * (beta - start), 1e-7)

    for_each([0.03, 1.0], check)


def test_decaying_damping_of_depth_two_is_a_bregman_path():
    """With u = (log w)-coordinates of β = w₁w₂ balanced, ∇ψ replaces β in the identity."""
    x, y = separable(8, 12, seed=3)
    w = torch.full((2, 12), 0.5, dtype=F64)
    run = integrate(
        natural, Bernoulli(), Diagonal(depth=2), w, (x, y), until=4.0, rtol=1e-11, atol=1e-12,
        damping=decaying_damping(0.5),
    )  # fmt: skip
    # For w₁ = w₂ = √β: ẇ₁ = ẇ₂ = β̇/(2√β), so λ‖ẇ‖² is λ β̇²/(2β) and ∇ψ(β) = ½ log β.
    beta, first = run.final.prod(0), w.prod(0)
    pushed = gradient(first, x, y) - math.exp(4.0) * gradient(beta, x, y)
    assert_near(pushed, 0.5 * 0.5 * (beta.log() - first.log()), 1e-6)


def test_damping_that_falls_faster_than_the_loss_leaves_a_vertex():
    """c = −lim eᵗ∇L exists for λ ∝ L², and β tends to the vertex of min c·b, X̃b ≥ 1."""

    def check(seed):
        x, y = separable(40, 6, seed=seed)
        run = integrate(
            natural, Bernoulli(), Direct(), torch.zeros(6, dtype=F64), (x, y), until=200.0,
            rtol=1e-7, log_time=False, damping=loss_damping(0.1, power=2),
        )  # fmt: skip
        cost = -math.exp(200.0) * gradient(run.final, x, y)
        answer = linprog(
            cost.numpy(), A_ub=-signed(x, y).numpy(), b_ub=-np.ones(40), bounds=(None, None)
        )
        vertex = torch.as_tensor(answer.x)
        angle = float(diagnostics.angle(run.final, vertex))
        assert math.degrees(angle) < 0.5

    for_each(range(3), check)


def test_constant_schedules_are_constant_damping():
    x, y = separable(10, 6)
    args = (natural, Bernoulli(), Direct(), torch.zeros(6, dtype=F64), (x, y))
    plain = integrate(*args, until=3.0, rtol=1e-10, damping=0.2).final
    for schedule in (loss_damping(0.2, power=0), decaying_damping(0.2, rate=0)):
        assert_near(integrate(*args, until=3.0, rtol=1e-10, damping=schedule).final, plain, 1e-9)


def test_descents_know_the_time():
    x, y = separable(10, 6)
    start = torch.zeros(6, dtype=F64)
    run = descend(
        natural, Bernoulli(), Direct(), start, (x, y), step=0.5, until=steps_reached(3),
        damping=decaying_damping(1.0),
    )  # fmt: skip
    beta = start
    for k in range(3):
        damping = math.exp(-0.5 * k)
        beta = beta + 0.5 * natural(Bernoulli(), Direct(), beta, (x, y), damping=damping)
    assert_near(run.final, beta, 1e-12)


def test_schedules_are_checked():
    with pytest.raises(InvalidInputError, match="decaying_damping"):
        DampingSchedule()
    with pytest.raises(InvalidInputError, match="at least 0"):
        loss_damping(-1.0, power=1)
