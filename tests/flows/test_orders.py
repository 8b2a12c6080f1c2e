"""Observed orders of accuracy: of every integrator, and of descents towards their flows."""

import math

import numpy as np
import pytest
import torch

import natgrad as ng
from natgrad.flows import constant, midpoint
from natgrad.flows._methods.steppers.rosenbrock import rodas_step
from tests.cases import MODELS, randn
from tests.limits.data import separable

TOLERANCES = {
    "dopri": (1e-4, 1e-5, 1e-6, 1e-7, 1e-8),
    "dop853": (1e-3, 1e-5, 1e-7, 1e-9, 1e-11),
    "radau": (1e-3, 1e-4, 1e-5, 1e-6, 1e-7),
    "bdf": (1e-4, 1e-5, 1e-6, 1e-7),
    "lsoda": (1e-4, 1e-5, 1e-6, 1e-7),
    "rkc": (1e-3, 1e-4, 1e-5, 1e-6),
    "dual": (1e-2, 1e-3, 1e-4, 1e-5),
}
# Fixed orders 5, 8, 5, 2, 2; the others choose their order as they go.
ORDERS = {
    "dopri": (4.5, 7.0),
    "dop853": (7.0, 10.5),
    "radau": (3.5, 6.5),
    "rkc": (1.6, 2.4),
    "dual": (1.7, 2.5),
}


@pytest.mark.parametrize("method", TOLERANCES)
def test_errors_fall_with_the_tolerance_at_the_order_of_the_method(method) -> None:
    """The slope of log error against log steps is the order; estimates bound the errors."""
    x, y = separable(12, 3)
    w = ng.Diagonal(2).init_gaussian(3, scale=0.8, generator=torch.Generator().manual_seed(1))
    args = (ng.euclidean, ng.Bernoulli(), ng.Diagonal(2), w, (x, y))
    exact = ng.integrate(*args, until=3e3, method="dop853", rtol=1e-13, atol=1e-15).final
    steps, errors = [], []
    for rtol in TOLERANCES[method]:
        path = ng.integrate(*args, until=3e3, method=method, rtol=rtol, atol=1e-2 * rtol)
        steps.append(path.steps)
        errors.append(float((path.final - exact).norm() / exact.norm()))
        assert errors[-1] < path.error_estimate
    if method in ORDERS:
        low, high = ORDERS[method]
        assert low < -np.polyfit(np.log(steps), np.log(errors), 1)[0] < high
    # Error per step is held, so errors fall as tol^{p/(p+1)}.
    assert 0.5 < np.polyfit(np.log(TOLERANCES[method]), np.log(errors), 1)[0] < 1.3


def rodas(steps: int, rate: float = 3.0) -> tuple[float, float]:
    """y' = −rate y³ + sin 2t to t = 2, and the last estimate of the error."""
    y, h = torch.full((1,), 1.2, dtype=torch.float64), 2 / steps
    estimate = y
    for i in range(steps):
        t = i * h

        def field(t, y):
            return -rate * y**3 + math.sin(2 * t)

        def shifted(a, y=y):
            return lambda r: r / (a + 3 * rate * y**2)

        slope = torch.full((1,), 2 * math.cos(2 * t), dtype=torch.float64)
        y, estimate = rodas_step(field, t, y, h, field(t, y), shifted, slope)
    return float(y), float(estimate.abs())


def test_the_linearly_implicit_method_is_of_third_order() -> None:
    exact = rodas(8192)[0]
    errors, estimates = [], []
    for n in (64, 128, 256):
        value, estimate = rodas(n)
        errors.append(abs(value - exact))
        estimates.append(estimate)
    assert 2.7 < math.log2(errors[1] / errors[2]) < 3.2
    assert 2.7 < math.log2(estimates[1] / estimates[2]) < 3.3  # local error of the second order


@pytest.mark.parametrize("z", [-1.0, -1e2, -1e6])
def test_the_linearly_implicit_method_damps_whatever_is_stiff(z) -> None:
    one = torch.ones(1, dtype=torch.float64)
    y, _ = rodas_step(
        lambda t, y: z * y, 0.0, one, 1.0, z * one, lambda a: lambda r: r / (a - z), 0 * one
    )
    assert abs(float(y)) < min(1.0, 10 / abs(z))


@pytest.mark.parametrize("direction", [ng.euclidean, ng.natural])
@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.name)
def test_descents_tend_to_the_flow(model, direction) -> None:
    """Every parametrization: the gap at t = 0.3 falls as η or η², and the flow is where it ends."""
    x = model.inputs(6, seed=3)
    y = randn(4)(*model.parametrization.predict(model.params, x).shape)
    args = (direction, ng.Gaussian(), model.parametrization, model.params, (x, y))
    flow = ng.reference.flatten(
        ng.integrate(*args, until=0.3, method="dop853", rtol=1e-10, atol=1e-12).final
    )
    for rule, order in ((constant, 1), (midpoint, 2)):
        gaps, ends = [], []
        for n in (12, 24):
            path = ng.descend(
                *args, step=rule(0.3 / n), until=ng.stopping.steps_reached(n), save_every=n
            )
            ends.append(ng.reference.flatten(path.final))
            gaps.append(float((ends[-1] - flow).norm() / flow.norm()))
        assert 2**order / 1.3 < gaps[0] / gaps[1] < 1.3 * 2**order, rule.__name__
        limit = (2**order * ends[1] - ends[0]) / (2**order - 1)
        assert float((limit - flow).norm()) < 0.3 * gaps[1] * float(flow.norm()), rule.__name__
