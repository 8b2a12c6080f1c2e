"""Arora et al.'s equation for the product, against gradient flow of its factors."""

import pytest
import torch

import natgrad as ng
from natgrad.errors import InvalidInputError
from natgrad.flows import end_to_end
from tests.cases import randn

LOSS = ng.Gaussian(reduction="sum")


def entries(rows: int, columns: int):
    x = torch.cartesian_prod(torch.arange(rows), torch.arange(columns))[::2]
    return x, randn(1)(len(x))


def test_depth_one_is_gradient_descent() -> None:
    beta, batch = randn(2)(3, 4), entries(3, 4)
    assert torch.allclose(
        end_to_end(1)(LOSS, ng.Direct(), beta, batch),
        ng.euclidean(LOSS, ng.Direct(), beta, batch),
    )


@pytest.mark.parametrize("depth", [2, 3, 5])
@pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2)], ids=str)
def test_velocity_of_balanced_factors(depth, shape) -> None:
    """The direction pushed through balanced factors, wide and tall."""
    u, s, vh = torch.linalg.svd(randn(3)(*shape), full_matrices=False)
    root = torch.diag(s ** (1 / depth))
    w = (u @ root, *[root] * (depth - 2), root @ vh)
    product, batch = ng.MatrixProduct(depth), entries(*shape)
    pushed = product.push(w, ng.euclidean(LOSS, product, w, batch))
    alone = end_to_end(depth)(LOSS, ng.Direct(), product.hypothesis(w), batch)
    assert torch.allclose(alone, pushed, rtol=1e-10, atol=1e-12)


def test_rank_is_conserved() -> None:
    """A product of rank one stays of rank one, although its gradient is not."""
    beta, batch = torch.outer(randn(4)(4), randn(5)(4)), entries(4, 4)
    args = (end_to_end(2), LOSS, ng.Direct(), beta, batch)
    path = ng.integrate(*args, until=2.0, method="dop853", rtol=1e-10)
    s = torch.linalg.svdvals(path.final)
    assert float(s[1] / s[0]) < 1e-6
    assert float((path.final - beta).norm()) > 0.1


@pytest.mark.parametrize("depth", [0, -1, 1.5])
def test_depth_must_be_a_positive_integer(depth) -> None:
    with pytest.raises(InvalidInputError, match="integer of at least 1"):
        end_to_end(depth)
