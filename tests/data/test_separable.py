"""Separable data: as documented, and as the figures need them."""

import math
from itertools import pairwise

import pytest
import torch

from natgrad.data.separable import planar, sparse_gaussian
from natgrad.errors import InvalidInputError
from natgrad.limits import max_margin, natural_flow


def test_labels_are_those_of_the_separator() -> None:
    task = sparse_gaussian(50, 12, ones=3, seed=4)
    assert task.beta.tolist() == [1.0] * 3 + [0.0] * 9
    assert bool((task.y == torch.sign(task.x[:, :3].sum(1))).all())
    assert set(task.y.tolist()) == {-1.0, 1.0}


def test_the_seed_decides() -> None:
    one, same, other = (sparse_gaussian(6, 5, ones=1, seed=s).x for s in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize(("n", "dim", "ones"), [(0, 5, 1), (3, 5, 6), (3, 5, 0)])
def test_impossible_sizes_are_refused(n: int, dim: int, ones: int) -> None:
    with pytest.raises(InvalidInputError, match="an integer of at least 1"):
        sparse_gaussian(n, dim, ones=ones, seed=0)


@pytest.mark.parametrize("n", [4, 12, 40])
def test_the_planar_separators_differ(n: int) -> None:
    task = planar(n)
    limits = [max_margin(*task.batch, p=2), max_margin(*task.batch, p=1), natural_flow(*task.batch)]
    angles = sorted(math.degrees(math.atan2(*limit.solution.flip(0).tolist())) for limit in limits)
    assert bool((task.y * task.x[:, 0] > 0).all())  # the axis separates
    assert min(b - a for a, b in pairwise(angles)) > 1
    assert angles[0] > 1  # and is none of them
    assert {k for limit in limits for k in limit.basis.tolist()} == {0, 1, 2}


def test_too_few_planar_data_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="an integer of at least 4"):
        planar(3)
