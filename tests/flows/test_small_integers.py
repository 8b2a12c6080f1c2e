"""Natural flows of 200 small-integer sets: separable or not, duplicated, symmetric."""

import collections

import pytest
import torch
from torch import Tensor

import natgrad as ng
from natgrad.limits import natural_flow, separability
from natgrad.stopping import Status
from tests.helpers import F64, for_each

SETS = 200


def integers(seed: int) -> tuple[Tensor, Tensor]:
    """Rows in −2…2 with random labels; a third has duplicates, a third is symmetric."""
    draw = torch.Generator().manual_seed(seed)
    n = int(torch.randint(3, 11, (1,), generator=draw))
    d = int(torch.randint(2, 5, (1,), generator=draw))
    x = torch.randint(-2, 3, (n, d), generator=draw).double()
    y = 2.0 * torch.randint(0, 2, (n,), generator=draw).double() - 1
    if seed % 3 == 1:
        x, y = torch.cat([x, x[:2]]), torch.cat([y, y[:2]])
    if seed % 3 == 2:
        x, y = torch.cat([x, -x]), torch.cat([y, -y])
    return x, y


@pytest.mark.parametrize("sets", [40, pytest.param(SETS, marks=pytest.mark.slow)])
def test_natural_flows_of_small_integers_end_where_they_must(sets) -> None:
    """Logits that separate grow along the linear program; the others end at their optimum."""
    kinds: collections.Counter[str] = collections.Counter()
    times = torch.tensor([5e3, 1e4], dtype=F64)

    def check(seed: int) -> None:
        x, y = integers(seed)
        found = separability(x, y)
        kinds[found.kind] += 1
        beta = torch.zeros(x.shape[1], dtype=F64)
        args = (ng.natural, ng.Bernoulli(), ng.Direct(), beta, (x, y))
        path = ng.integrate(*args, until=1e4, times=times)
        assert path.status == Status.TIME_REACHED, path.detail
        held, signed = ~found.separated, y[:, None] * x
        if found.kind != "not separable":
            limit = natural_flow(x, y).solution
            slope = (path.at(1) - path.at(0)) / 5e3
            assert float((slope - limit).norm()) < 1e-6 * max(1.0, float(limit.norm()))
        gradient = signed[held].mT @ torch.sigmoid(-(signed[held] @ path.final))
        assert float(gradient.norm()) < 1e-8  # what cannot be separated is at its optimum

    for_each(range(sets), check)
    assert all(
        kinds[kind] >= sets / 20 for kind in ("separable", "quasi-separable", "not separable")
    )
