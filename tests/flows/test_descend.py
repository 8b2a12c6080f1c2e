"""Discrete descents and stopping rules."""

from dataclasses import replace

import pytest
import torch

import natgrad as ng
from natgrad.errors import InvalidInputError
from natgrad.flows import StepRule, armijo, constant, midpoint, normalized
from natgrad.stopping import Status
from tests.cases import randn


def problem(n: int = 10, d: int = 30):
    draw = randn(0)
    return draw(n, d), torch.sign(draw(n))


def test_fixed_steps_are_the_formula() -> None:
    x, y = problem(6, 4)
    beta = torch.zeros(4, dtype=torch.float64)
    path = ng.descend(
        ng.euclidean,
        ng.Bernoulli(),
        ng.Direct(),
        beta,
        (x, y),
        step=0.3,
        until=ng.stopping.steps_reached(5),
    )
    for _ in range(5):
        beta = beta + 0.3 * (x.mT @ (y * torch.sigmoid(-y * (x @ beta)))) / 6
    assert torch.allclose(path.final, beta, rtol=1e-12)
    assert torch.allclose(path.times, 0.3 * torch.arange(6, dtype=torch.float64))
    assert path.status == Status.TIME_REACHED


def test_normalized_descent_reaches_the_direction_of_the_flow_much_sooner() -> None:
    x, y = problem()
    args = (ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(30, dtype=torch.float64), (x, y))
    flow = ng.integrate(*args, until=1e8)
    fast = ng.descend(*args, step=normalized(), until=1e8, save_every=1000)
    cosine = torch.nn.functional.cosine_similarity(flow.final, fast.final, dim=0)
    assert float(cosine) > 0.9999
    assert fast.steps < 2000
    assert float(fast.times[-1]) >= 1e8


def test_natural_steps_at_depth_two_keep_the_logits_of_depth_one_to_first_order() -> None:
    x, y = problem(5, 9)
    w = torch.stack([0.1 * randn(3)(9), torch.ones(9, dtype=torch.float64)])
    gaps = []
    for step in (0.1, 0.05):
        args = {"step": step, "until": 1.0}
        deep = ng.descend(ng.natural, ng.Bernoulli(), ng.Diagonal(2), w, (x, y), **args).final
        flat = ng.descend(ng.natural, ng.Bernoulli(), ng.Direct(), w.prod(0), (x, y), **args).final
        gaps.append(float((x @ (deep.prod(0) - flat)).norm()))
    assert 1.6 < gaps[0] / gaps[1] < 2.5


def test_midpoint_steps_are_the_formula() -> None:
    x, y = problem(6, 4)
    beta = torch.zeros(4, dtype=torch.float64)
    args = (ng.euclidean, ng.Bernoulli(), ng.Direct(), beta, (x, y))
    path = ng.descend(*args, step=midpoint(0.3), until=ng.stopping.steps_reached(3))

    def slope(b):
        return (x.mT @ (y * torch.sigmoid(-y * (x @ b)))) / 6

    for _ in range(3):
        beta = beta + 0.3 * slope(beta + 0.15 * slope(beta))
    assert torch.allclose(path.final, beta, rtol=1e-12)
    assert path.evaluations == 6


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (constant, {"size": 0.0}),
        (midpoint, {"size": 0.0}),
        (armijo, {"grow": 0.5}),
        (normalized, {"shrink": 0.0}),
        (normalized, {"shrink": 1.5}),
    ],
)
def test_step_rules_that_make_no_sense_are_refused(rule, bad) -> None:
    with pytest.raises(InvalidInputError):
        rule(**bad)


def test_the_description_of_step_rules_is_no_rule() -> None:
    with pytest.raises(InvalidInputError, match=r"constant\(0.1\)"):
        StepRule(0.1)


def test_armijo_shortens_a_step_until_the_loss_falls() -> None:
    x, y = problem(6, 4)
    beta = torch.zeros(4, dtype=torch.float64)
    args = (ng.euclidean, ng.Gaussian(), ng.Direct(), beta, (x, y))
    until = ng.stopping.steps_reached(20)
    assert ng.descend(*args, step=100.0, until=until).losses.diff().max() > 0
    path = ng.descend(*args, step=armijo(100.0), until=until)
    assert path.losses.diff().max() < 0
    lengths = path.times.diff()
    assert float(lengths.max()) < 100.0
    for before, after, eta in zip(path.states[:-1], path.states[1:], lengths, strict=True):
        slope = x.mT @ (y - x @ before) / 6
        assert torch.allclose(after - before, eta * slope, rtol=1e-9, atol=1e-12)


def test_a_step_rule_of_your_own() -> None:
    class Halving(StepRule):
        size = 1.0

        def take(self, problem, params, loss, size):
            taken = constant(size).take(problem, params, loss, size)
            return replace(taken, size=size / 2)

    x, y = problem(6, 4)
    args = (ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(4, dtype=torch.float64), (x, y))
    path = ng.descend(*args, step=Halving(), until=ng.stopping.steps_reached(3))
    assert path.times.tolist() == [0.0, 1.0, 1.5, 1.75]


class TestRules:
    def run(self, until, **options):
        x, y = problem()
        beta = torch.zeros(30, dtype=torch.float64)
        return ng.descend(
            ng.euclidean, ng.Bernoulli(), ng.Direct(), beta, (x, y), step=1.0, until=until,
            max_steps=3000, **options,
        )  # fmt: skip

    def test_loss(self) -> None:
        path = self.run(ng.stopping.loss_below(0.01))
        assert path.status == Status.CONVERGED
        assert float(path.losses[-1]) <= 0.01 < float(path.losses[-2])

    def test_margin(self) -> None:
        x, y = problem()
        path = self.run(ng.stopping.margin_above(2.0))
        assert float((y * (x @ path.final)).min()) > 2.0

    def test_either_and_both(self) -> None:
        either = self.run(ng.stopping.loss_below(0.01) | ng.stopping.steps_reached(3))
        both = self.run(ng.stopping.loss_below(0.3) & ng.stopping.steps_reached(40))
        assert either.steps == 3
        assert both.steps >= 40
        assert float(both.losses[-1]) <= 0.3

    def test_direction(self) -> None:
        path = self.run(ng.stopping.direction_settled(0.02) & ng.stopping.steps_reached(10))
        assert path.status == Status.CONVERGED
        assert path.steps < 3000

    def test_wall_clock(self) -> None:
        assert self.run(ng.stopping.wall_clock(0.0)).steps == 1

    def test_steps_run_out(self) -> None:
        path = self.run(ng.stopping.loss_below(0.0))
        assert path.status == Status.STALLED


def test_overshooting_natural_steps_are_reported_as_divergence() -> None:
    """Euler steps from badly wrong logits explode: velocity 1 + e^{10} at s = −10."""
    x = torch.eye(2, dtype=torch.float64)
    y = torch.tensor([1.0, 1.0], dtype=torch.float64)
    beta = torch.tensor([-10.0, -10.0], dtype=torch.float64)
    path = ng.descend(
        ng.natural, ng.Bernoulli(), ng.Direct(), beta, (x, -y), step=-0.1 + 0.2, until=50.0
    )
    assert path.status in (Status.TIME_REACHED, Status.DIVERGED)
    wrong = ng.descend(
        ng.natural, ng.Gaussian(), ng.Direct(), beta, (x, y), step=3.0, until=1e6, max_steps=3000
    )
    assert wrong.status == Status.DIVERGED


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_dtype_follows_the_parameters(dtype) -> None:
    x, y = (t.to(dtype) for t in problem(4, 3))
    path = ng.descend(
        ng.natural, ng.Bernoulli(), ng.Direct(), torch.zeros(3, dtype=dtype), (x, y),
        step=0.1, until=1.0,
    )  # fmt: skip
    assert path.final.dtype == dtype
