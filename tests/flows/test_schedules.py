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


# ∇ψ(β) for balanced factors w₁ = … = w_L = β^{1/L}: JJᵀ = L β^{2−2/L}, and ψ″ = 1/JJᵀ.
MIRRORS = {
    1: lambda beta: beta,
    2: lambda beta: beta.log() / 2,
    3: lambda beta: -(beta ** (-1 / 3)),
}


@pytest.mark.parametrize("shape", [(8, 12), (20, 5)], ids=str)
@pytest.mark.parametrize("depth", MIRRORS)
def test_decaying_damping_is_a_regularization_path(depth, shape):
    """∇L(β₀) − eᵗ∇L(β) = λ₀ (∇ψ(β) − ∇ψ(β₀)): a ridge path for L = 1, a Bregman path else."""
    x, y = separable(*shape, seed=1)
    first = 0.25 + 0.2 * randn(shape[1], seed=2).abs()
    model = Direct() if depth == 1 else Diagonal(depth=depth)
    start = first if depth == 1 else first.pow(1 / depth).expand(depth, -1).clone()

    def check(strength):
        run = integrate(
            natural, Bernoulli(), model, start, (x, y), until=3.0,
            times=torch.tensor([0.5, 3.0], dtype=F64), rtol=1e-12, atol=1e-13,
            damping=decaying_damping(strength),
        )  # fmt: skip
        for t, state in zip(run.times, run.states, strict=True):
            beta = state if depth == 1 else state.prod(0)
            pushed = gradient(first, x, y) - math.exp(float(t)) * gradient(beta, x, y)
            turned = MIRRORS[depth](beta) - MIRRORS[depth](first)
            assert_near(pushed, strength * turned, 1e-8)

    for_each([0.3, 2.0], check)


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
