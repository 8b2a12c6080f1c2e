"""Flows to late times on data of every kind, against limits found by solvers of another kind."""

import numpy as np
import pytest
import scipy.optimize
import torch
from torch import Tensor

import natgrad as ng
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression
from natgrad.limits import max_margin, natural_flow, separability
from tests.helpers import F64, assert_near, pinv, randn
from tests.limits.data import deficient, not_separable, separable, signed

SEPARABLE = {
    "tall": separable(12, 4, seed=1),
    "wide": separable(5, 9),
    "deficient": deficient(14, 6, 3, seed=2),
    "deficient and wide": deficient(6, 12, 3, seed=2),
}


def flattened(x: Tensor, y: Tensor, d: int) -> tuple[Tensor, Tensor]:
    """The same data in a larger space that they do not span."""
    return x @ randn(x.shape[1], d, seed=9), y


def quasi() -> tuple[Tensor, Tensor]:
    """Eight separable rows, and twenty that live in the last two features and are not."""
    x, y = separable(8, 5)
    few, labels = not_separable(20, 2, seed=4)
    held = torch.cat([torch.zeros(20, 3, dtype=F64), few], dim=1)
    return torch.cat([held, x]), torch.cat([labels, y])


FINITE = {
    "full rank": not_separable(30, 4),
    "deficient": flattened(*not_separable(30, 3), 5),
}
QUASI = {"full rank": quasi(), "deficient": flattened(*quasi(), 7)}


def outside(x: Tensor) -> Tensor:
    """The projector on what no sample sees."""
    return torch.eye(x.shape[1], dtype=F64) - pinv(x) @ x


def flow(direction, x: Tensor, y: Tensor, beta: Tensor, times: list[float], **options):
    network = options.pop("network", ng.Direct())
    return ng.integrate(
        direction, ng.Bernoulli(), network, beta, (x, y),
        until=times[-1], times=torch.tensor(times, dtype=F64), **options,
    )  # fmt: skip


def minimizer(x: Tensor, y: Tensor, start: Tensor) -> Tensor:
    """The finite optimum nearest to the start, by SciPy's BFGS in the span of the data."""
    _, s, vh = torch.linalg.svd(x, full_matrices=False)
    basis = vh[: int((s > 1e-10 * s[0]).sum())].mT
    a = (signed(x, y) @ basis).numpy()

    def loss(z):
        u = a @ z
        return np.logaddexp(0, -u).sum(), -a.T @ (1 / (1 + np.exp(u)))

    found = scipy.optimize.minimize(
        loss, np.zeros(basis.shape[1]), jac=True, method="BFGS", options={"gtol": 1e-9}
    )
    return start - basis @ (basis.mT @ start) + basis @ torch.from_numpy(found.x)


@pytest.mark.parametrize("kind", SEPARABLE)
def test_natural_flow_of_separable_data_tends_to_the_linear_program(kind) -> None:
    x, y = SEPARABLE[kind]
    beta = 0.3 * randn(x.shape[1], seed=7)
    path = flow(ng.natural, x, y, beta, [3e5, 1e6], method="dop853", rtol=1e-8)
    limit = natural_flow(x, y, beta).solution
    assert_near((path.at(1) - path.at(0)) / 7e5, limit, 1e-6)
    assert float((outside(x) @ (path.final - beta)).norm()) < 1e-13 * float(path.final.norm())
    newton = natural_flow_of_logistic_regression(beta, (x, y), torch.tensor([1e6], dtype=F64))
    assert_near(path.final, newton.final, 1e-6)
    assert float((outside(x) @ (newton.final - beta)).norm()) < 1e-13 * float(path.final.norm())


@pytest.mark.parametrize("kind", QUASI)
def test_natural_flow_of_quasi_separable_data_holds_what_cannot_be_separated(kind) -> None:
    x, y = QUASI[kind]
    beta, held = 0.3 * randn(x.shape[1], seed=7), ~separability(x, y).separated
    path = natural_flow_of_logistic_regression(beta, (x, y), torch.tensor([1e3, 1e6], dtype=F64))
    limit = natural_flow(x, y, beta).solution
    assert_near((path.at(1) - path.at(0)) / (1e6 - 1e3), limit, 1e-9)
    # Logits that cannot be separated end where their own loss is least.
    alone = minimizer(x[held], y[held], torch.zeros_like(beta))
    assert_near(x[held] @ path.final, x[held] @ alone, 1e-5)
    integrated = flow(ng.natural, x, y, beta, [100.0], method="dop853")
    assert float(integrated.times[-1]) == 100
    newton = natural_flow_of_logistic_regression(beta, (x, y), torch.tensor([100.0]))
    assert_near(integrated.final, newton.final, 1e-5)


@pytest.mark.parametrize("direction", [ng.euclidean, ng.natural])
@pytest.mark.parametrize("kind", FINITE)
def test_flows_of_data_that_are_not_separable_end_at_the_optimum(kind, direction) -> None:
    x, y = FINITE[kind]
    beta = 0.3 * randn(x.shape[1], seed=7)
    optimum = minimizer(x, y, beta)
    path = flow(direction, x, y, beta, [1e3, 1e9], rtol=1e-6)
    assert path.evaluations < 2000
    assert_near(path.final, optimum, 1e-6)
    tight = flow(direction, x, y, beta, [1.0, 40.0], method="dop853", rtol=1e-9, log_time=False)
    assert_near(flow(direction, x, y, beta, [1.0, 40.0], rtol=1e-6).at(0), tight.at(0), 1e-4)


@pytest.mark.parametrize("depth", [2, 3])
def test_depth_does_not_move_a_finite_optimum(depth) -> None:
    x, y = FINITE["full rank"]
    network = ng.Diagonal(depth)
    w = network.init_free(4, scale=0.5)
    path = flow(ng.euclidean, x, y, w, [1e9], network=network, rtol=1e-4)
    assert_near(path.final.prod(0), minimizer(x, y, torch.zeros(4, dtype=F64)), 1e-3)


@pytest.mark.parametrize("kind", SEPARABLE)
def test_gradient_flow_of_separable_data_tends_to_the_max_margin(kind) -> None:
    """β(t) = b log t + O(1), so the slope in log t shows b long before the direction does."""
    x, y = SEPARABLE[kind]
    beta = 0.3 * randn(x.shape[1], seed=7)
    path = flow(ng.euclidean, x, y, beta, [1e10, 1e15, 1e20], rtol=1e-6)
    limit = max_margin(x, y).solution
    early, late = ((path.at(i + 1) - path.at(i)) / np.log(1e5) for i in range(2))
    assert float((late - limit).norm()) < 0.7 * float((early - limit).norm())
    assert_near(late, limit, 1e-2)
    assert float((outside(x) @ (path.final - beta)).norm()) < 1e-10


@pytest.mark.parametrize("kind", QUASI)
def test_gradient_flow_of_quasi_separable_data_separates_within_the_complement(kind) -> None:
    """Max margin of the separable rows among b with X̃_K b = 0; the others end at their optimum."""
    x, y = QUASI[kind]
    held = ~separability(x, y).separated
    beta = 0.3 * randn(x.shape[1], seed=7)
    path = flow(ng.euclidean, x, y, beta, [1e7, 1e9], rtol=1e-5)
    assert path.evaluations < 3000
    free = torch.linalg.svd(x[held])[2][2:].mT
    limit = free @ max_margin(x[~held] @ free, y[~held]).solution
    assert_near((path.at(1) - path.at(0)) / np.log(100), limit, 2e-3)
    alone = minimizer(x[held], y[held], torch.zeros_like(beta))
    assert_near(x[held] @ path.final, x[held] @ alone, 1e-3)
    stiff = flow(ng.euclidean, x, y, beta, [1e4], method="lsoda", rtol=1e-9, atol=1e-10)
    assert_near(flow(ng.euclidean, x, y, beta, [1e4], rtol=1e-6).final, stiff.final, 1e-3)
