"""Natural gradient flow of logistic regression, judged by Newton's method in many digits."""

import mpmath
import pytest
import torch
from torch import Tensor

import natgrad as ng
from natgrad.errors import ConvergenceError, InvalidInputError
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression
from natgrad.flows.trajectory import Status
from natgrad.limits import natural_flow
from tests.helpers import F64, randn
from tests.limits.data import deficient, not_separable, quasi, separable, signed

KINDS = {
    "separable": separable(12, 4, seed=1),
    "separable, many": separable(40, 4, seed=2),
    "quasi-separable": quasi(8, 4, seed=3),
    "not separable": not_separable(15, 4, seed=4),
}


def exact_error(a: Tensor, beta: Tensor, start: Tensor, t: float) -> float:
    """Return how far margins are from the path at t: one Newton step with 80 + t digits."""
    with mpmath.workdps(int(80 + t)):
        rows, here, there = (mpmath.matrix(m.tolist()) for m in (a, beta, start))
        u = rows * here
        now = [1 / (1 + mpmath.exp(v)) for v in u]
        wanted = [mpmath.exp(-mpmath.mpf(t)) / (1 + mpmath.exp(v)) for v in rows * there]
        d = range(rows.cols)
        fisher = mpmath.matrix(rows.cols)
        for i in d:
            for j in d:
                terms = (p * (1 - p) * rows[n, i] * rows[n, j] for n, p in enumerate(now))
                fisher[i, j] = mpmath.fsum(terms)
        gap = rows.T * mpmath.matrix([p - q for p, q in zip(now, wanted, strict=True)])
        moved = rows * mpmath.lu_solve(fisher, gap)
        return float(max(abs(v) for v in moved)) / max(1.0, float(max(abs(v) for v in u)))


@pytest.mark.parametrize("scale", [0.0, 0.5, 20.0])
@pytest.mark.parametrize("kind", KINDS)
def test_every_time_solves_the_equation_of_the_path(kind, scale) -> None:
    """∇L(t) = e^{−t}∇L(0), from zero and from starts with margins beyond ±40."""
    x, y = KINDS[kind]
    beta = scale * randn(4, seed=7)
    times = torch.tensor([0.0, 0.5, 3.0, 20.0, 60.0, 300.0], dtype=F64)
    flow = natural_flow_of_logistic_regression(beta, (x, y), times)
    assert flow.error_estimate < 1e-8
    for i, t in enumerate(times.tolist()):
        error = exact_error(signed(x, y), flow.at(i), beta, t)
        assert error < max(1e-11, 10 * flow.error_estimate)


def test_the_error_estimate_is_no_ornament() -> None:
    """A point off the path is measured as such by the judge."""
    x, y = KINDS["separable"]
    start = torch.zeros(4, dtype=F64)
    flow = natural_flow_of_logistic_regression(start, (x, y), torch.tensor([20.0]))
    assert exact_error(signed(x, y), flow.final * (1 + 1e-6), start, 20.0) > 1e-7


@pytest.mark.parametrize("t", [1e6, 1e12, 1e300])
@pytest.mark.parametrize("shape", [(30, 8), (9, 8), (5, 9)], ids=str)
def test_any_time_can_be_reached(shape, t) -> None:
    x, y = separable(*shape)
    beta = randn(shape[1], seed=5)
    flow = natural_flow_of_logistic_regression(beta, (x, y), torch.tensor([t], dtype=F64))
    vertex = natural_flow(x, y, beta).solution
    assert float((flow.final / t - vertex).norm() / vertex.norm()) < max(50 / t, 1e-12)
    assert flow.evaluations < 300


@pytest.mark.parametrize("kind", [*KINDS, "deficient", "independent"])
def test_integrate_takes_the_newton_path(kind) -> None:
    """Every step and every saved time of `integrate` lies on the path."""
    others = {"deficient": deficient(12, 6, 3), "independent": separable(5, 9)}
    x, y = KINDS.get(kind) or others[kind]
    beta, times = 0.3 * randn(x.shape[1], seed=6), torch.tensor([0.1, 7.0, 5e3], dtype=F64)
    args = (ng.natural, ng.Bernoulli(), ng.Direct(), beta, (x, y))
    path = ng.integrate(*args, until=1e4, times=times)
    assert path.method == "Newton path"
    alone = natural_flow_of_logistic_regression(beta, (x, y), times)
    for i in range(3):
        assert torch.allclose(path.at(i), alone.at(i), rtol=1e-9)
    every = ng.integrate(*args, until=1e4)
    closed = natural_flow_of_logistic_regression(beta, (x, y), every.times)
    assert torch.allclose(every.states, closed.states, rtol=1e-9)
    assert float((every.times[1:] / every.times[:-1])[5:].max()) < 2


def test_several_solutions_are_refused_once_rounding_decides() -> None:
    """On the face b₀ = 1 the path tends to z = 0.4 by cancellations of size e^{−0.4 t}."""
    x = torch.tensor([[1, 0], [1.2, 0.5], [1.6, -0.5]], dtype=F64)
    args = (torch.zeros(2, dtype=F64), (x, torch.ones(3, dtype=F64)))
    path = natural_flow_of_logistic_regression(*args, torch.tensor([30.0]))
    assert exact_error(x, path.final, args[0], 30.0) < 1e-6
    with pytest.raises(ConvergenceError, match="rounding errors"):
        natural_flow_of_logistic_regression(*args, torch.tensor([1e3]))
    stalled = ng.integrate(ng.natural, ng.Bernoulli(), ng.Direct(), *args, until=1e3)
    assert (stalled.status, "rounding" in stalled.detail) == (Status.STALLED, True)


def test_single_precision_is_solved_in_double() -> None:
    x, y = separable(30, 8)
    double = natural_flow_of_logistic_regression(
        torch.zeros(8, dtype=F64), (x.float().double(), y), torch.tensor([40.0])
    )
    single = natural_flow_of_logistic_regression(
        torch.zeros(8), (x.float(), y.float()), torch.tensor([40.0])
    )
    assert single.final.dtype == torch.float32
    assert torch.equal(single.final, double.final.float())


def test_times_must_increase() -> None:
    x, y = separable(9, 4)
    with pytest.raises(InvalidInputError, match="increase"):
        natural_flow_of_logistic_regression(
            torch.zeros(4, dtype=F64), (x, y), torch.tensor([2.0, 1.0])
        )


def test_zero_inputs_do_not_move() -> None:
    beta = randn(3, seed=1)
    flow = natural_flow_of_logistic_regression(
        beta, (torch.zeros(4, 3, dtype=F64), torch.ones(4, dtype=F64)), torch.tensor([5.0])
    )
    assert torch.equal(flow.final, beta)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1500, 2500])
def test_full_size(n) -> None:
    """D = 1000 to t = 10⁶: few factorisations, and the vertex and basis of the linear program."""
    x, y = separable(n, 1000)
    times = torch.logspace(0, 6, 7, dtype=F64)
    flow = natural_flow_of_logistic_regression(torch.zeros(1000, dtype=F64), (x, y), times)
    assert flow.error_estimate < 1e-10
    assert flow.evaluations < 100
    start = ng.euclidean(ng.Bernoulli(), ng.Direct(), torch.zeros(1000, dtype=F64), (x, y))
    early = ng.euclidean(ng.Bernoulli(), ng.Direct(), flow.at(1), (x, y))
    decay = torch.exp(-times[1])
    assert float((early - decay * start).norm() / (decay * start).norm()) < 1e-8
    limit = natural_flow(x, y)
    assert float((flow.final / 1e6 - limit.solution).norm() / limit.solution.norm()) < 1e-4
    held = torch.topk(y * (x @ flow.final), 1000, largest=False).indices
    assert set(held.tolist()) == set(limit.basis.tolist())
