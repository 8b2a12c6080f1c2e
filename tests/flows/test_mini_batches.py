"""Stochastic descent: mini-batches, their orders, and what they estimate."""

import itertools

import pytest
import torch

import natgrad as ng
from natgrad.errors import NatgradError
from natgrad.flows import adam, armijo, constant, momentum
from natgrad.flows._batches import indices
from natgrad.stopping import Status, loss_below, steps_reached
from tests.cases import randn

F64 = torch.float64


def problem(n: int = 7, d: int = 3):
    draw = randn(0)
    return draw(n, d), torch.sign(draw(n))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def epoch(order: str, n: int = 7, size: int = 3, epochs: int = 2, seed: int = 0):
    batches = indices(n, size, order, seeded(seed))
    per_epoch = -(-n // size)
    return [
        list(itertools.chain(*(next(batches).tolist() for _ in range(per_epoch))))
        for _ in range(epochs)
    ]


def test_a_shuffled_epoch_sees_every_sample_once_in_an_order_of_its_own() -> None:
    first, second = epoch("shuffle")
    assert sorted(first) == sorted(second) == list(range(7))
    assert first != second
    assert epoch("shuffle", seed=1)[0] != first


def test_a_cyclic_epoch_keeps_the_order_of_the_batch() -> None:
    assert epoch("cyclic") == [list(range(7))] * 2


def test_draws_with_replacement_repeat_samples_and_are_uniform() -> None:
    draws = torch.cat(list(itertools.islice(indices(4, 2, "replacement", seeded()), 4000)))
    counts = torch.bincount(draws, minlength=4).double()
    assert float((counts - 2000).abs().max()) < 5 * (8000 * 3 / 16) ** 0.5  # five deviations


@pytest.mark.parametrize("order", ["shuffle", "cyclic", "replacement"])
def test_steps_are_the_formula_on_the_samples_of_their_turn(order) -> None:
    x, y = problem()
    beta = torch.zeros(3, dtype=F64)
    path = ng.descend(
        ng.euclidean, ng.Bernoulli(), ng.Direct(), beta, (x, y),
        step=0.3, until=steps_reached(8), batch_size=3, order=order, generator=seeded(5),
    )  # fmt: skip
    for rows in itertools.islice(indices(7, 3, order, seeded(5)), 8):
        a, b = x[rows], y[rows]
        beta = beta + 0.3 * (a.mT @ (b * torch.sigmoid(-b * (a @ beta)))) / len(rows)
    assert torch.allclose(path.final, beta, rtol=1e-12)
    assert path.times[-1] == pytest.approx(8 * 0.3)
    whole = torch.nn.functional.softplus(-y * (x @ beta)).mean()
    assert float(path.losses[-1]) == pytest.approx(float(whole), rel=1e-12)
    assert order in path.method


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_the_mean_step_of_an_epoch_is_the_full_step(reduction) -> None:
    """From one point, equal mini-batches of an epoch average to the step of the whole batch."""
    x, y = problem(8)
    beta = randn(1)(3)
    likelihood = ng.Gaussian(reduction=reduction)
    args = (ng.euclidean, likelihood, ng.Direct(), beta)
    rows = list(itertools.islice(indices(8, 2, "shuffle", seeded()), 4))
    ends = [
        ng.descend(
            *args, (torch.cat([x[r], x]), torch.cat([y[r], y])),
            step=0.1, until=steps_reached(1), batch_size=2, order="cyclic",
        ).final
        for r in rows
    ]  # fmt: skip
    # Ten samples of which a step sees two: a sum counts them five times, a full one four.
    scale = 1.0 if reduction == "mean" else 8 / 10
    mean = scale * (torch.stack(ends).mean(0) - beta)
    whole = ng.descend(*args, (x, y), step=0.1, until=steps_reached(1)).final - beta
    assert torch.allclose(mean, whole, rtol=1e-12)


def test_natural_steps_take_the_fisher_of_their_samples() -> None:
    x, y = problem(6, 4)
    beta = 0.1 * randn(2)(4)
    args = (ng.natural, ng.Bernoulli(reduction="sum"), ng.Direct(), beta)
    path = ng.descend(*args, (x, y), step=0.2, until=steps_reached(1), batch_size=3, order="cyclic")
    alone = ng.descend(*args, (x[:3], y[:3]), step=0.2, until=steps_reached(1))
    assert torch.allclose(path.final, alone.final, rtol=1e-12)


def test_rules_look_at_all_samples() -> None:
    x, y = problem(20, 40)
    path = ng.descend(
        ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(40, dtype=F64), (x, y),
        step=0.5, until=loss_below(0.1), batch_size=4, generator=seeded(), max_steps=2000,
    )  # fmt: skip
    assert path.status == Status.CONVERGED
    whole = torch.nn.functional.softplus(-y * (x @ path.states.mT).mT).mean(1)
    assert torch.allclose(path.losses, whole, rtol=1e-12)
    assert float(whole[-1]) <= 0.1 < float(whole[-2])


def test_armijo_compares_losses_of_its_own_samples() -> None:
    x, y = problem(8, 3)
    path = ng.descend(
        ng.euclidean, ng.Gaussian(), ng.Direct(), torch.zeros(3, dtype=F64), (x, y),
        step=armijo(100.0), until=steps_reached(8), batch_size=2, order="cyclic",
    )  # fmt: skip
    for k, (before, after) in enumerate(itertools.pairwise(path.states)):
        rows = slice(2 * k % 8, 2 * k % 8 + 2)
        losses = [float((y[rows] - x[rows] @ b).square().sum()) for b in (before, after)]
        assert losses[1] < losses[0]


@pytest.mark.parametrize("rule", [constant, armijo, momentum, adam])
def test_the_whole_batch_in_turn_is_plain_descent(rule) -> None:
    x, y = problem()
    args = (ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(3, dtype=F64), (x, y))
    plain = ng.descend(*args, step=rule(0.3), until=2.0)
    whole = ng.descend(*args, step=rule(0.3), until=2.0, batch_size=7, order="cyclic")
    assert torch.equal(plain.states, whole.states)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"batch_size": 0}, "at least 1 and at most 7, but is 0"),
        ({"batch_size": 8}, "at least 1 and at most 7, but is 8"),
        ({"batch_size": 2, "order": "shufle"}, "Did you mean 'shuffle'"),
        ({"batch_size": 2, "generator": 3}, "must be a torch.Generator or None, but is 3"),
        ({"order": "cyclic"}, "batch_size is None"),
        ({"generator": seeded()}, "batch_size is None"),
    ],
)
def test_mini_batches_that_make_no_sense_are_refused(bad, words) -> None:
    x, y = problem()
    args = (ng.euclidean, ng.Bernoulli(), ng.Direct(), torch.zeros(3, dtype=F64), (x, y))
    with pytest.raises(NatgradError, match=words):
        ng.descend(*args, step=0.3, until=1.0, **bad)
