"""Natural gradient flow of logistic regression, judged by Newton's method in many digits."""

import mpmath
import pytest
import torch
from torch import Tensor

import natgrad as ng
from natgrad.errors import InvalidInputError
from natgrad.flows._methods.logistic.newton_path import NewtonPath
from natgrad.flows.closed_forms import natural_flow_of_logistic_regression
from natgrad.limits import natural_flow
from natgrad.stopping import Status
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
    assert path.method == "Newton path; chosen for a natural flow of logistic regression"
    alone = natural_flow_of_logistic_regression(beta, (x, y), times)
    for i in range(3):
        assert torch.allclose(path.at(i), alone.at(i), rtol=1e-9)
    every = ng.integrate(*args, until=1e4)
    closed = natural_flow_of_logistic_regression(beta, (x, y), every.times)
    assert torch.allclose(every.states, closed.states, rtol=1e-9)
    assert float((every.times[1:] / every.times[:-1])[5:].max()) < 2


def test_several_solutions_that_balance_exactly() -> None:
    """On the face b₀ = 1 the path tends to z = 0.4, held by sums that cancel exactly."""
    x = torch.tensor([[1, 0], [1.2, 0.5], [1.6, -0.5]], dtype=F64)
    args = (torch.zeros(2, dtype=F64), (x, torch.ones(3, dtype=F64)))
    for t in (30.0, 1e3):
        path = natural_flow_of_logistic_regression(*args, torch.tensor([t]))
        assert exact_error(x, path.final, args[0], t) < 1e-9
    assert torch.allclose(path.final / 1e3, natural_flow(x, args[1][1]).solution, atol=2e-3)


def test_a_symmetric_and_duplicated_set_is_followed_to_the_end() -> None:
    x = torch.tensor([[0, 1], [0, 1], [1, 3], [-1, 3]], dtype=F64)
    args = (ng.natural, ng.Bernoulli(), ng.Direct(), torch.zeros(2, dtype=F64), (x, torch.ones(4)))
    newton, generic = (ng.integrate(*args, until=1e3, method=m) for m in ("auto", "dop853"))
    assert newton.status == generic.status == Status.TIME_REACHED
    assert torch.allclose(newton.final[1], generic.final[1], rtol=1e-6)
    # Along the other axis the symmetric path is unstable: rounding grows as e^t, so the generic
    # method leaves it on machines whose sums do not cancel exactly. The Newton path must not.
    assert abs(newton.final[0]) < 1e-6


def small_integers(seed: int) -> Tensor:
    """Return signed rows of small integers: duplicated, mirrored, with a bias, or all of it."""
    generator = torch.Generator().manual_seed(seed)
    n, d, kind = int(torch.randint(2, 7, (1,), generator=generator)), 2 + seed % 3, seed % 4
    x = torch.randint(-3, 4, (n, d), generator=generator).double()
    mirrored = x * torch.cat([-torch.ones(1), torch.ones(d - 1)])
    if kind >= 2:
        x[:, -1] = mirrored[:, -1] = x[:, -1].abs() + 1
    return [torch.cat([x, x[:2]]), torch.cat([x, mirrored]), x, torch.cat([x, mirrored, x[:1]])][
        kind
    ]


@pytest.mark.parametrize(
    "seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(20, 60))]
)
def test_small_integers_end_where_the_flow_ends(seed) -> None:
    """Late paths may be unstable: a generic integrator leaves some of them long before t = 100."""
    x = small_integers(seed)
    beta, ones = torch.zeros(x.shape[1], dtype=F64), torch.ones(len(x), dtype=F64)
    args = (ng.natural, ng.Bernoulli(), ng.Direct(), beta, (x, ones))
    early, late = (ng.integrate(*args, until=t) for t in (10.0, 100.0))
    assert early.status == late.status == Status.TIME_REACHED
    generic = ng.integrate(*args, until=10.0, method="dop853", rtol=1e-9)
    u, v = x @ early.final, x @ generic.final
    assert float((u - v).abs().max()) <= 1e-6 * max(1.0, float(v.abs().max()))
    if int(torch.linalg.matrix_rank(x)) == x.shape[1]:
        assert exact_error(x, late.final, beta, 100.0) < 1e-9


def test_the_generic_integrator_takes_over(monkeypatch) -> None:
    """Where Newton's method fails `auto` goes on, with every time that was asked for."""
    x, y = separable(12, 4, seed=1)
    times = torch.tensor([0.0, 1.0, 3.0, 3.1, 6.0, 20.0], dtype=F64)
    args = (ng.natural, ng.Bernoulli(), ng.Direct(), 0.3 * randn(4, seed=6), (x, y))
    whole = ng.integrate(*args, until=20.0, times=times)
    advance = NewtonPath.advance

    def fails(self: NewtonPath, end: float) -> Tensor:
        if end > 3.05:
            raise self._lost()
        return advance(self, end)

    monkeypatch.setattr(NewtonPath, "advance", fails)
    path = ng.integrate(*args, until=20.0, times=times, rtol=1e-9)
    assert path.status == Status.TIME_REACHED
    assert path.method.startswith("Newton path, then dop853 in log time; chosen for a natural")
    assert torch.equal(path.times, times)
    assert torch.allclose(path.states, whole.states, rtol=1e-6)
    stalled = ng.integrate(*args, until=20.0, method="newton")
    assert (stalled.status, "lost" in stalled.detail) == (Status.STALLED, True)


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
    """D = 1000 to t = 10⁶: few factorizations, and the vertex and basis of the linear program."""
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
