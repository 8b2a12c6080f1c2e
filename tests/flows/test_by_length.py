"""Flows by the length of their path: the same paths as in time, at any margin."""

import numpy as np
import pytest
import torch

from natgrad import (
    Bernoulli,
    Categorical,
    DeepLinear,
    Diagonal,
    Direct,
    Gaussian,
    euclidean,
    integrate,
    limits,
    natural,
)
from natgrad.diagnostics import angle
from natgrad.errors import DtypeError, InvalidInputError
from natgrad.flows import Status, integrate_by_length
from natgrad.flows._by_length import arc_path
from natgrad.linalg.norms import Nuclear
from natgrad.parametrizations.base import flatten
from tests.helpers import for_each


def data(n=12, d=4, seed=0):
    source = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=torch.float64, generator=source)
    return x, torch.sign(x[:, 0] + 0.3 * x[:, 1])


def test_paths_are_those_of_flows_in_time() -> None:
    x, y = data()
    labels = (x[:, :3] @ torch.eye(3, dtype=x.dtype)).argmax(1)
    network = DeepLinear([4, 3, 3])
    factors = network.init_gaussian(scale=0.5, generator=torch.Generator().manual_seed(1))
    cases = {
        "gradient": (euclidean, Bernoulli(), Direct(), torch.zeros(4, dtype=x.dtype), y),
        "natural": (natural, Bernoulli(), Direct(), torch.zeros(4, dtype=x.dtype), y),
        "diagonal": (euclidean, Bernoulli(), Diagonal(2), Diagonal(2).init_free(4, scale=0.3), y),
        "classes": (euclidean, Categorical(), network, factors, labels),
        "squares": (euclidean, Gaussian(), Direct(), torch.zeros(4, dtype=x.dtype), y),
    }

    def check(case) -> None:
        direction, likelihood, model, start, target = case
        slow = integrate(
            direction, likelihood, model, start, (x, target), until=2.0,
            times=torch.linspace(0, 2, 301, dtype=x.dtype), rtol=1e-9,
        )  # fmt: skip
        states = torch.stack([flatten(slow.at(k)) for k in range(len(slow))])
        length = states.diff(dim=0).norm(dim=1).sum()
        lengths = torch.stack([length / 2, length])
        fast = integrate_by_length(
            direction, likelihood, model, start, (x, target), lengths=lengths
        )
        assert fast.status is Status.TIME_REACHED
        assert len(fast) == 2
        # Chords are shorter than the path by the square of their share of it.
        assert float((flatten(fast.final) - states[-1]).norm()) < 1e-5 * float(length)

    for_each(cases, lambda name: check(cases[name]))


def test_margins_of_ten_thousand_have_the_certified_direction() -> None:
    x, y = data()
    zero = torch.zeros(4, dtype=x.dtype)
    path = integrate_by_length(
        euclidean, Bernoulli(), Direct(), zero, (x, y), lengths=torch.tensor([1.0, 1e5])
    )
    assert float(path.losses[-1]) == 0.0
    assert float(angle(path.final, limits.max_margin(x, y).solution)) < 2e-3
    vertex = limits.natural_flow(x, y).solution
    path = integrate_by_length(
        natural, Bernoulli(), Direct(), zero, (x, y), lengths=torch.tensor([1e5])
    )
    assert float(angle(path.final, vertex)) < 2e-3


def test_two_layers_of_classes_tend_to_the_nuclear_margin() -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(6, 3, dtype=torch.float64, generator=source)
    labels = (x @ torch.randn(3, 3, dtype=x.dtype, generator=source)).argmax(1)
    network = DeepLinear([3, 3, 3])
    start = network.init_gaussian(scale=1e-2, generator=source)
    path = integrate_by_length(
        euclidean, Categorical(), network, start, (x, labels), lengths=torch.tensor([200.0])
    )
    beta = network.hypothesis(path.final)
    outputs = x @ beta.mT
    own = outputs.gather(1, labels[:, None])
    others = outputs.scatter(1, labels[:, None], -float("inf"))
    margin = float((own - others).min()) / Nuclear()(beta)
    best = limits.multiclass_max_margin(x, labels, Nuclear()).value
    assert 0.99 * best < margin <= best * (1 + 1e-8)


def test_records_and_early_ends() -> None:
    x = torch.eye(1, dtype=torch.float64)
    y = torch.tensor([2.0], dtype=torch.float64)
    start = torch.zeros(1, dtype=torch.float64)
    lengths = torch.tensor([0.0, 1.0, 3.0])
    path = integrate_by_length(
        euclidean, Gaussian(), Direct(), start, (x, y), lengths=lengths, max_evaluations=300,
        record={"twice": lambda b: 2 * b[0]},
    )  # fmt: skip
    # The minimum is at length 2: nothing lies beyond it.
    assert path.status in (Status.STALLED, Status.CONVERGED)
    assert path.times.tolist() == [0.0, 1.0]
    assert path.recorded["twice"].tolist() == pytest.approx([0.0, 2.0])
    still = integrate_by_length(euclidean, Gaussian(), Direct(), y, (x, y), lengths=lengths[1:])
    assert still.status is Status.CONVERGED
    assert "vanishes" in still.detail


def test_refusals() -> None:
    x, y = data()
    start = torch.zeros(4, dtype=x.dtype)
    with pytest.raises(DtypeError, match="float64"):
        integrate_by_length(
            euclidean, Bernoulli(), Direct(), start.float(), (x.float(), y.float()), lengths=[1.0]
        )
    with pytest.raises(InvalidInputError, match="lengths must increase"):
        integrate_by_length(euclidean, Bernoulli(), Direct(), start, (x, y), lengths=[2.0, 1.0])


def test_a_path_that_ends_early_is_nan_from_there_on() -> None:
    def velocity(b):
        return np.where(b[0] < 2, 1.0, np.nan) * np.ones(1)

    arc = arc_path(velocity, np.zeros(1), [1.0, 5.0])
    assert np.isfinite(arc.points[0]).all()
    assert np.isnan(arc.points[1]).all()
    assert arc.status is Status.DIVERGED
