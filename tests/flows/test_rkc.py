"""Runge–Kutta–Chebyshev: order, stability interval, spectral radius."""

import math
from itertools import pairwise

import pytest
import torch

from natgrad.flows._methods.steppers.rkc import (
    SpectralRadius,
    coefficients,
    local_error,
    rkc_step,
    stages,
)


def linear(eigenvalue: float):
    return lambda t, y: eigenvalue * y


@pytest.mark.parametrize("s", [2, 3, 5, 12, 40])
def test_two_orders_of_accuracy_on_a_nonautonomous_problem(s) -> None:
    """y' = −y + sin t; the slope of log error against log step is two."""

    def field(t, y):
        return -y + math.sin(t)

    exact = (math.sin(2) - math.cos(2)) / 2 + 1.5 * math.exp(-2)
    errors = []
    for steps in (16, 32, 64):
        y, h = torch.ones(1, dtype=torch.float64), 2 / steps
        for i in range(steps):
            y = rkc_step(field, i * h, y, h, field(i * h, y), s)
        errors.append(abs(float(y) - exact))
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(1.9 < order < 2.2 for order in orders)


@pytest.mark.parametrize("s", [2, 5, 20, 100])
def test_stable_up_to_the_step_that_the_stage_count_allows(s) -> None:
    """|R(z)| ≤ 1 on the whole interval, and not far beyond it."""
    interval = 2 / 3 * (s * s - 1) * (1 - 2 / 15 * 2 / 13)
    one = torch.ones(1, dtype=torch.float64)
    for z in torch.linspace(0.01, 0.995, 200).tolist():
        value = rkc_step(linear(-z * interval), 0.0, one, 1.0, -z * interval * one, s)
        assert abs(float(value)) <= 1 + 1e-9
    beyond = 1.1 * interval
    assert abs(float(rkc_step(linear(-beyond), 0.0, one, 1.0, -beyond * one, s))) > 1


@pytest.mark.parametrize("radius", [1.0, 30.0, 4e3, 1e6])
def test_stages_cover_the_radius(radius) -> None:
    s = stages(1.0, radius)
    assert 2 / 3 * (s * s - 1) * (1 - 2 / 15 * 2 / 13) >= radius


def test_local_error_estimate_is_of_third_order() -> None:
    one, errors = torch.ones(1, dtype=torch.float64), []
    for h in (0.2, 0.1, 0.05):
        y = rkc_step(linear(-1.0), 0.0, one, h, -one, 6)
        errors.append(abs(float(local_error(one, y, h, -one, -y))))
    assert 2.7 < math.log2(errors[0] / errors[1]) < 3.3


def test_spectral_radius_is_an_upper_estimate() -> None:
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(30, 30, dtype=torch.float64, generator=generator)
    a = -a @ a.mT
    y = torch.randn(30, dtype=torch.float64, generator=generator)
    estimate = SpectralRadius().update(lambda t, y: a @ y, 0.0, y, a @ y)
    exact = float(torch.linalg.eigvalsh(a).abs().max())
    assert exact <= estimate <= 1.3 * exact


def test_abscissae_end_at_one() -> None:
    assert coefficients(7).c[-1] == pytest.approx(1.0)
