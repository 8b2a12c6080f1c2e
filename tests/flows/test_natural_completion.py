import math

import pytest
import torch

import natgrad as ng
from natgrad.data.completion import low_rank
from natgrad.errors import InvalidInputError
from natgrad.flows import Status
from natgrad.flows._methods.completion.hypothesis_steps import natural_completion
from natgrad.flows._methods.completion.observed_natural import observed_natural_flow
from natgrad.flows.closed_forms import singular_times
from tests.helpers import F64, assert_near, generator, positions, randn

SUM = ng.Gaussian(reduction="sum")


def problem(n=8, observed=25, seed=1):
    return positions(n, n, observed, seed=seed), randn(observed, seed=seed + 1)


def line(beta, x, y):
    """Where natural gradient flow over all entries leads β."""
    end = beta.clone()
    end[x[:, 0], x[:, 1]] = y
    return end


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-9])
@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_minimum_norm_keeps_beta_on_its_line_from_small_gaussian_starts(depth, scale):
    x, y = problem()
    product = ng.MatrixProduct(depth)
    w = product.init_gaussian((8, 8), scale=scale, generator=generator(depth))
    path = natural_completion(w, x, y)
    assert path.status == Status.CONVERGED
    beta = product.hypothesis(w)
    end = line(beta, x, y)
    for k in range(len(path)):
        share = -math.expm1(-float(path.times[k]))
        assert_near(product.hypothesis(path.at(k)), beta + share * (end - beta), 1e-6)
    assert path.error_estimate < 1e-6


def test_longest_step_is_respected_and_time_is_that_of_the_flow():
    x, y = problem()
    product = ng.MatrixProduct(2)
    w = product.init_gaussian((8, 8), scale=1.0, generator=generator(0))
    path = natural_completion(w, x, y, step=0.2, train_error=1e-6)
    assert float(path.times.diff().max()) <= -math.log(0.8) + 1e-12
    decay = path.losses / path.losses[0]
    assert_near(decay, torch.exp(-2 * path.times), 1e-6)


def singular_start(depth, n=8, observed=25):
    """A start whose line crosses det β = 0, and the first crossing."""
    x, y = problem(n, observed)
    product = ng.MatrixProduct(depth)
    for seed in range(20):
        w = product.init_gaussian((n, n), scale=1.0, generator=generator(seed))
        beta = product.hypothesis(w)
        times = singular_times(beta, line(beta, x, y))
        if len(times) and float(times[0]) < 3:
            return w, x, y, float(times[0])
    raise AssertionError("no such start")


@pytest.mark.parametrize("depth", [2, 3])
def test_equal_share_says_where_the_determinant_vanishes(depth):
    w, x, y, wall = singular_start(depth)
    path = natural_completion(w, x, y, selection="equal_share")
    assert path.status == Status.SINGULAR
    assert float(path.times[-1]) == pytest.approx(wall, rel=1e-2)
    assert f"det β vanishes at t = {wall:.6g}" in path.detail
    product = ng.MatrixProduct(depth)
    beta = product.hypothesis(w)
    share = -math.expm1(-wall)
    there = torch.linalg.svdvals(beta + share * (line(beta, x, y) - beta))
    assert float(there[-1]) < 1e-9 * float(there[0])
    assert natural_completion(w, x, y).status == Status.CONVERGED  # the minimum norm passes


def test_a_singular_start_is_said_to_be_one():
    x, y = problem()
    product = ng.MatrixProduct(2)
    w = product.init_gaussian((8, 8), hidden=3, scale=1.0, generator=generator(1))
    path = natural_completion(w, x, y, selection="equal_share")
    assert path.status == Status.SINGULAR
    assert len(path) == 1


def test_the_generic_flow_stops_at_the_same_time():
    w, x, y, wall = singular_start(2, n=3, observed=5)
    flow = ng.integrate(
        ng.natural, SUM, ng.MatrixProduct(2), w, (x, y),
        until=wall + 1.0, selection="equal_share", rtol=1e-5, max_evaluations=1000,
    )  # fmt: skip
    assert flow.status in (Status.SINGULAR, Status.STALLED)
    assert float(flow.times[-1]) == pytest.approx(wall, rel=1e-3)


def test_one_layer_alone_passes_a_vanishing_determinant():
    w, x, y, _ = singular_start(2)
    path = natural_completion(w, x, y, selection=ng.LayerShares((1.0, 0.0)))
    assert path.status == Status.CONVERGED
    assert torch.equal(path.final[1], w[1])


@pytest.mark.parametrize("depth", [2, 3])
def test_equal_share_from_orthogonal_factors(depth):
    x, y = problem()
    product = ng.MatrixProduct(depth)
    w = product.init_orthogonal((8, 8), scale=20.0, generator=generator(0))
    path = natural_completion(w, x, y, selection="equal_share")
    assert path.status == Status.CONVERGED
    assert_near(product.hypothesis(path.final), line(product.hypothesis(w), x, y), 1e-6)


def test_rectangular_and_deep():
    x, y = positions(5, 9, 20, seed=3), randn(20, seed=4)
    product = ng.MatrixProduct(3)
    w = product.init_gaussian((5, 9), scale=1e-2, hidden=10, generator=generator(1))
    path = natural_completion(w, x, y)
    assert path.status == Status.CONVERGED
    assert_near(product.hypothesis(path.final), line(product.hypothesis(w), x, y), 1e-6)


def test_bottleneck_that_cannot_follow_is_singular_not_wrong():
    x, y = problem()
    product = ng.MatrixProduct(2)
    w = product.init_gaussian((8, 8), hidden=2, scale=1.0, generator=generator(1))
    path = natural_completion(w, x, y)
    assert path.status == Status.SINGULAR
    assert "cannot follow" in path.detail


@pytest.mark.parametrize("depth", [2, 3])
def test_observed_natural_flow_follows_the_generic_flow_over_the_batch(depth):
    x, y = positions(5, 6, 12, seed=5), randn(12, seed=6)
    product = ng.MatrixProduct(depth)
    w = product.init_gaussian((5, 6), scale=0.5, generator=generator(depth))
    mine = observed_natural_flow(w, x, y, rtol=1e-5, train_error=1e-4)
    judge = ng.integrate(
        ng.natural, SUM, product, w, (x, y),
        until=float(mine.times[-1]), fisher_over="batch", rtol=1e-8,
    )  # fmt: skip
    assert mine.status == Status.CONVERGED
    assert_near(product.hypothesis(mine.final), product.hypothesis(judge.final), 3e-3)


def test_observed_natural_flow_residual_decays_at_unit_rate():
    problem = low_rank(shape=(20, 20), rank=2, observed=150, seed=0)
    product = ng.MatrixProduct(3)
    w = product.init_gaussian((20, 20), generator=generator(0))
    gap = problem.values - product.hypothesis(w)[problem.observed]
    flow = observed_natural_flow(w, problem.positions, problem.values, rtol=1e-3)
    decades = math.log(0.5 * float(gap.square().sum()) / float(flow.losses[-1]))
    assert decades / (2 * float(flow.times[-1])) == pytest.approx(1.0, rel=0.03)
    assert problem.test_error(product.hypothesis(flow.final)) < 0.5  # not trivial


def test_bad_input_is_refused_in_a_sentence():
    x, y = problem()
    w = ng.MatrixProduct(2).init_gaussian((8, 8), generator=generator(0))
    single = tuple(t.float() for t in w)
    with pytest.raises(InvalidInputError, match="float64"):
        natural_completion(single, x, y.float())
    with pytest.raises(InvalidInputError, match=r"step must be in \(0, 1\]"):
        natural_completion(w, x, y, step=1.5)
    with pytest.raises(InvalidInputError, match="at least two factors"):
        observed_natural_flow((torch.ones(8, 8, dtype=F64),), x, y)
    with pytest.raises(InvalidInputError, match="rtol in"):
        observed_natural_flow(w, x, y, rtol=0.0)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_integrate_keeps_the_hypothesis_on_its_line(reduction) -> None:
    """β(t) = β(0) + (1 − e^{−t}) G at every saved time, as a generic solver has it."""
    product, (x, y) = ng.MatrixProduct(3), problem(6, 15)
    w = product.init_gaussian((6, 6), scale=0.3, generator=generator(0))
    beta = product.hypothesis(w)
    change = torch.zeros_like(beta)
    change[x[:, 0], x[:, 1]] = y - beta[x[:, 0], x[:, 1]]
    times = torch.tensor([0.1, 1.0, 7.0, 50.0, 1e4], dtype=F64)
    args = (ng.natural, ng.Gaussian(reduction=reduction), product, w, (x, y))
    path = ng.integrate(*args, until=1e4, times=times, rtol=1e-8, method="line")
    assert path.method.startswith("line")
    assert path.status == Status.TIME_REACHED
    for i, t in enumerate(times.tolist()):
        wanted = beta - math.expm1(-t) * change
        gap = product.hypothesis(path.at(i)) - wanted
        assert float(gap.norm()) < 1e-7 * float(wanted.norm())
    generic = ng.integrate(*args, until=1.0, rtol=1e-8, method="dop853")
    wanted = beta - math.expm1(-1.0) * change
    assert torch.allclose(product.hypothesis(generic.final), wanted, rtol=1e-6, atol=1e-8)
    early = ng.integrate(*args, until=ng.stopping.loss_below(1e-6), method="line")
    assert early.status == Status.CONVERGED


def test_integrate_follows_the_flow_over_observed_entries() -> None:
    product, batch = ng.MatrixProduct(2), problem(6, 15)
    w = product.init_gaussian((6, 6), scale=0.3, generator=generator(0))
    args = (ng.natural, SUM, product, w, batch)
    options = {"until": 2.0, "times": torch.tensor([0.4, 2.0]), "fisher_over": "batch"}
    exact = ng.integrate(*args, **options, method="dop853", rtol=1e-9)
    path = ng.integrate(*args, **options, rtol=1e-3)
    assert path.method.startswith("observed")
    assert path.status == Status.TIME_REACHED
    for i in range(2):
        wanted = product.hypothesis(exact.at(i))
        assert_near(product.hypothesis(path.at(i)), wanted, 1e-2)
    assert ng.integrate(*args, **options, rtol=1e-5).method.startswith("dop853")
