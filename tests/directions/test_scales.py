"""Dependent rows, one layer alone, and scales far from one."""

import mpmath
import pytest
import torch

import natgrad as ng
from natgrad.linalg import graded_lstsq
from tests.cases import randn


def exact_weighted(a, b, ell) -> torch.Tensor:
    with mpmath.workdps(400):
        rows, p = mpmath.matrix(a.tolist()), a.shape[1]
        matrix, rhs = mpmath.matrix(p, p), mpmath.matrix(p, 1)
        for n in range(len(a)):
            weight = mpmath.exp(2 * mpmath.mpf(float(ell[n])))
            for i in range(p):
                rhs[i] += weight * rows[n, i] * mpmath.mpf(float(b[n]))
                for j in range(p):
                    matrix[i, j] += weight * rows[n, i] * rows[n, j]
        return torch.tensor([float(v) for v in mpmath.lu_solve(matrix, rhs)], dtype=torch.float64)


@pytest.mark.parametrize("spread", [5.0, 20.0, 60.0, 300.0])
@pytest.mark.parametrize("seed", range(6))
def test_integer_rows_that_depend_on_heavier_ones(seed, spread) -> None:
    """Counts and one-hot features: rounding of a dependence must not be weighed up."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randint(-3, 4, (11, 5), generator=generator).double()
    a[2], a[3], a[4] = a[0] + a[1], 2 * a[0] + a[1], a[0] - a[1]
    if torch.linalg.matrix_rank(a) < 5:
        a[5:10] = torch.eye(5, dtype=torch.float64)
    ell = -torch.linspace(0, spread, 11, dtype=torch.float64)
    b = randn(seed)(11)
    exact = exact_weighted(a, b, ell)
    got = graded_lstsq(a, b, ell).solution
    assert float((got - exact).norm() / exact.norm()) < 1e-11


@pytest.mark.parametrize("power", [-250, -160, -30, 30, 150, 160, 250])
def test_the_scale_of_all_rows_cancels(power) -> None:
    a, b = randn(1)(11, 5), randn(2)(11)
    ell = -torch.linspace(0, 40, 11, dtype=torch.float64)
    plain = graded_lstsq(a, b, ell)
    scaled = graded_lstsq(a * 2.0**power, b, ell)
    assert scaled.rank == plain.rank
    assert torch.allclose(scaled.solution * 2.0**power, plain.solution, rtol=1e-12)


def test_rows_of_very_different_norm() -> None:
    x = randn(5)(30, 6) * torch.exp(8 * randn(8)(30))[:, None]
    y = torch.sign(randn(9)(30))
    beta = torch.zeros(6, dtype=torch.float64)
    v = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, y))
    exact = exact_weighted(x, 2 * y, torch.zeros(30))
    assert float((v - exact).norm() / exact.norm()) < 1e-10


@pytest.mark.parametrize("fisher_over", ["batch", "sample"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layer", [0, 1, 3])
def test_one_layer_alone_moves_nothing_else(layer, dtype, fisher_over) -> None:
    product = ng.MatrixProduct(4)
    generator = torch.Generator().manual_seed(layer)
    w = product.init_gaussian((4, 4), scale=1.0, generator=generator, dtype=dtype)
    x = torch.tensor([[0, 1], [2, 3], [1, 1], [3, 0]])
    everything = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    shares = [0.0] * 4
    shares[layer] = 1.0
    v = ng.natural(
        ng.Gaussian(), product, w, (x, randn(3)(4).to(dtype)),
        selection=ng.LayerShares(shares),
        fisher_over="batch" if fisher_over == "batch" else everything,
    )  # fmt: skip
    for i, part in enumerate(v):
        assert bool(part.any()) == (i == layer)


@pytest.mark.parametrize("seed", range(4))
def test_theorem_2_natural_directions_follow_invertible_maps_of_the_inputs(seed) -> None:
    """N ≥ D: Aᵀ v(XAᵀ) = v(X); N < D (Theorem 1): only the training logits move alike."""
    draw = randn(seed)
    a = draw(4, 4)
    for n in (3, 9):
        x, y, beta = draw(n, 4), torch.sign(draw(n)), draw(4)
        there = torch.linalg.solve(a.mT, beta)  # the same hypothesis on XAᵀ
        v = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, y))
        w = ng.natural(ng.Bernoulli(), ng.Direct(), there, (x @ a.mT, y))
        assert torch.allclose(x @ a.mT @ w, x @ v, rtol=1e-9)
        assert torch.allclose(a.mT @ w, v, rtol=1e-8) == (n >= 4)
        moved = ng.euclidean(ng.Bernoulli(), ng.Direct(), there, (x @ a.mT, y))
        plain = ng.euclidean(ng.Bernoulli(), ng.Direct(), beta, (x, y))
        assert not torch.allclose(
            x @ a.mT @ moved, x @ plain, rtol=0.05
        )  # gradient descent does not
