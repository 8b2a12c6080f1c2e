import math

import pytest
import torch

import natgrad as ng
from natgrad.data.completion import low_rank
from natgrad.diagnostics import balancedness
from natgrad.errors import DtypeError, InvalidInputError, ShapeError
from natgrad.flows import Status
from natgrad.flows._methods.completion import observed
from natgrad.flows._methods.completion.chain import Chain
from natgrad.flows._methods.completion.flow import _Stepper, completion_flow
from tests.helpers import assert_near, chain, generator, positions, randn

SHAPES = {1: (6, 5), 2: (6, 4, 5), 3: (6, 7, 5, 5), 4: (5, 5, 5, 5, 5)}


def case(depth):
    w = tuple(0.5 * t for t in chain(SHAPES[depth], seed=depth))
    rows, columns = SHAPES[depth][0], SHAPES[depth][-1]
    return w, positions(rows, columns, 12, seed=3), randn(12, seed=4)


@pytest.mark.parametrize("depth", SHAPES)
def test_follows_the_flow_of_the_generic_integrator(depth):
    w, x, y = case(depth)
    product = ng.MatrixProduct(depth)
    mine = completion_flow(w, x, y, until=2.0, rtol=1e-8, train_error=1e-300)
    judge = ng.integrate(
        ng.euclidean, ng.Gaussian(reduction="sum"), product, w, (x, y),
        until=2.0, method="dop853", rtol=1e-10, atol=1e-12,
    )  # fmt: skip
    assert mine.status == Status.TIME_REACHED
    assert_near(product.hypothesis(mine.final), product.hypothesis(judge.final), 2e-5)
    assert float(mine.losses[-1]) == pytest.approx(float(judge.losses[-1]), rel=1e-3)


def test_error_falls_with_the_tolerance():
    w, x, y = case(3)
    product = ng.MatrixProduct(3)

    def end(rtol):
        flow = completion_flow(w, x, y, until=2.0, rtol=rtol, train_error=1e-300)
        return product.hypothesis(flow.final)

    exact = end(1e-8)
    errors = [float((end(rtol) - exact).norm()) for rtol in (1e-2, 1e-4, 1e-6)]
    assert errors[0] > 5 * errors[1] > 25 * errors[2]


def test_a_step_that_is_too_long_is_kept_in_part():
    w, x, y = case(3)
    product, rtol = ng.MatrixProduct(3), 1e-3
    stepper = _Stepper(Chain(w, observed.residual(x, y, (6, 5))), rtol)
    stepper._radius.value = 1e4  # as many stages as a stiff flow needs
    taken, error = stepper._try(1.0)
    assert taken is not None
    assert taken.h < 1
    assert taken.error <= 1 < error
    judge = ng.integrate(
        ng.euclidean, ng.Gaussian(reduction="sum"), product, w, (x, y),
        until=taken.h, method="dop853", rtol=1e-10,
    )  # fmt: skip
    exact = torch.cat([f.flatten() for f in judge.final])
    assert float((taken.y - exact).norm() / exact.norm()) < rtol


@pytest.mark.parametrize("depth", [2, 3])
def test_sparse_residuals_give_the_same_flow(depth, monkeypatch):
    w, x, y = case(depth)
    dense = completion_flow(w, x, y, until=1.0)
    monkeypatch.setattr(observed, "_SPARSE_FROM", 1)
    monkeypatch.setattr(observed, "_SPARSE_BELOW", 1.1)
    sparse = completion_flow(w, x, y, until=1.0)
    for a, b in zip(sparse.final, dense.final, strict=True):
        assert_near(a, b, 1e-12)


def test_conserves_balancedness_and_records():
    w, x, y = case(3)
    product = ng.MatrixProduct(3)
    flow = completion_flow(
        w, x, y, rtol=1e-6, record={"beta": lambda f: product.hypothesis(f)}, until=2.0
    )
    assert len(flow) == len(flow.recorded["beta"]) == len(flow.recorded["radius"]) > 5
    assert bool((flow.times.diff() > 0).all())
    assert_near(flow.recorded["beta"][0], product.hypothesis(w), 1e-14)
    first = 0.5 * (product.hypothesis(w)[x[:, 0], x[:, 1]] - y).square().sum()
    assert float(flow.losses[0]) == pytest.approx(float(first), rel=1e-12)
    assert_near(flow.recorded["beta"][-1], product.hypothesis(flow.final), 1e-14)
    for before, after in zip(
        balancedness(product, w), balancedness(product, flow.final), strict=True
    ):
        assert_near(after, before, 1e-5)


def test_radius_marks_the_edge_of_stability_of_plain_descent():
    problem = low_rank(shape=(12, 12), rank=2, observed=100, seed=0)
    product = ng.MatrixProduct(2)
    w = product.init_gaussian((12, 12), generator=generator(1))
    flow = completion_flow(w, problem.positions, problem.values)
    radius = float(flow.recorded["radius"][-1])

    def loss_after(step):
        args = (ng.euclidean, ng.Gaussian(reduction="sum"), product, flow.final)
        batch = (problem.positions, problem.values)
        path = ng.descend(*args, batch, step=step, until=ng.stopping.steps_reached(200))
        return float(path.losses[-1] / path.losses[0])

    assert loss_after(1.8 / radius) < 1
    assert not loss_after(2.4 / radius) < 1


@pytest.mark.parametrize(("depth", "scale"), [(2, 1e-3), (2, 1e-9), (3, 1e-3)])
def test_single_precision_finds_the_test_error_of_double(depth, scale):
    """The docstring's claim, on problems where the flow is not chaotic."""
    problem = low_rank(shape=(40, 40), rank=2, observed=500, seed=2)
    product = ng.MatrixProduct(depth)
    w = product.init_gaussian((40, 40), scale=scale, generator=generator(3))

    def test_error(dtype, rtol):
        narrow = tuple(t.to(dtype) for t in w)
        values = problem.values.to(dtype)
        flow = completion_flow(narrow, problem.positions, values, rtol=rtol, train_error=1e-5)
        assert flow.status == Status.CONVERGED
        return problem.test_error(product.hypothesis(flow.final))

    single, double = test_error(torch.float32, 1e-2), test_error(torch.float64, 1e-4)
    assert math.sqrt(single) == pytest.approx(math.sqrt(double), rel=0.15, abs=1e-2)


def test_deep_flow_recovers_a_matrix_that_depth_one_does_not():
    problem = low_rank(shape=(30, 30), rank=2, observed=450, seed=0)
    errors = {}
    for depth in (1, 3):
        product = ng.MatrixProduct(depth)
        w = product.init_gaussian((30, 30), generator=generator(0))
        flow = completion_flow(w, problem.positions, problem.values)
        errors[depth] = problem.test_error(product.hypothesis(flow.final))
    assert errors[1] > 0.9
    assert errors[3] < 1e-3


def test_ends_with_its_reason():
    w, x, y = case(2)
    assert completion_flow(w, x, y, max_evaluations=3).status == Status.STALLED
    assert completion_flow(w, x, y, train_error=100.0).status == Status.CONVERGED
    seen = []
    stopped = completion_flow(
        w, x, y, train_error=1e-12, watch=lambda t, f: seen.append(t) or len(seen) == 3
    )
    assert stopped.steps == 3
    assert "watch" in stopped.detail
    assert float(stopped.times[-1]) == seen[-1]


def test_bad_input_is_refused_in_a_sentence():
    w, x, y = case(2)
    with pytest.raises(InvalidInputError, match="observed twice"):
        completion_flow(w, torch.cat([x, x[:1]]), torch.cat([y, y[:1]]))
    with pytest.raises(ShapeError, match="one value per position"):
        completion_flow(w, x, y[:-1])
    with pytest.raises(DtypeError, match="float32"):
        completion_flow(w, x, y.float())
    with pytest.raises(InvalidInputError, match="finite"):
        completion_flow(w, x, torch.full_like(y, torch.nan))
    with pytest.raises(InvalidInputError, match="rtol in"):
        completion_flow(w, x, y, rtol=2.0)
