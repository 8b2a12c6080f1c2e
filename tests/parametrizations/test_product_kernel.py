import pytest
import torch

import natgrad as ng
from natgrad.errors import ConvergenceError, RankDeficientError
from natgrad.parametrizations._products.kernel import ProductKernel, conjugate_gradients
from tests.helpers import F64, assert_near, chain, generator, positions, randn, with_spectrum

SHAPES = {2: (5, 6, 4), 3: (5, 4, 6, 5), 4: (4, 5, 5, 4, 6)}


@pytest.mark.parametrize("depth", SHAPES)
def test_applies_the_tangent_kernel(depth):
    w, z = chain(SHAPES[depth], seed=1), randn(SHAPES[depth][0], SHAPES[depth][-1], seed=2)
    kernel = ng.ntk(ng.MatrixProduct(depth), w)
    assert_near(ProductKernel(w).apply(z), torch.einsum("ijkl,kl->ij", kernel, z), 1e-12)


@pytest.mark.parametrize("depth", SHAPES)
def test_solves_as_the_exact_lift(depth):
    w = chain((5,) * (depth + 1), seed=3)
    u, kernel = randn(5, 5, seed=4), ProductKernel(w)
    v = kernel.pull(kernel.solve(u, accuracy=1e-12))
    for mine, exact in zip(v, ng.MatrixProduct(depth).lift(w, u), strict=True):
        assert_near(mine, exact, 1e-8)


@pytest.mark.parametrize("depth", SHAPES)
def test_damped_solution_is_the_damped_natural_direction(depth):
    w, x, damping = chain((4,) * (depth + 1), seed=5), positions(4, 4, 7, seed=6), 0.3
    y = randn(7, seed=7)
    product, likelihood = ng.MatrixProduct(depth), ng.Gaussian(reduction="sum")
    v = ng.natural(likelihood, product, w, (x, y), damping=damping)
    beta, u = product.hypothesis(w), torch.zeros(4, 4, dtype=F64)
    u[x[:, 0], x[:, 1]] = y - beta[x[:, 0], x[:, 1]]
    kernel = ProductKernel(w)
    mine = kernel.pull(kernel.solve(u, accuracy=1e-12, damping=damping))
    for a, b in zip(mine, v, strict=True):
        assert_near(a, b, 1e-9)


@pytest.mark.parametrize("depth", SHAPES)
def test_observed_solution_is_the_natural_direction_of_the_batch(depth):
    w, x = chain((4,) * (depth + 1), seed=8), positions(4, 4, 6, seed=9)
    y, product = randn(6, seed=10), ng.MatrixProduct(depth)
    v = ng.natural(ng.Gaussian(reduction="sum"), product, w, (x, y), fisher_over="batch")
    mask, u = torch.zeros(4, 4, dtype=F64), torch.zeros(4, 4, dtype=F64)
    mask[x[:, 0], x[:, 1]] = 1
    u[x[:, 0], x[:, 1]] = y - product.hypothesis(w)[x[:, 0], x[:, 1]]
    kernel = ProductKernel(w)
    z = kernel.solve_observed(mask, u, accuracy=1e-13)
    assert not bool(z[mask == 0].any())
    for a, b in zip(kernel.pull(z), v, strict=True):
        assert_near(a, b, 1e-8)
    again = kernel.solve_observed(mask, u, accuracy=1e-13, guess=z)
    assert_near(again, z, 1e-12)


def test_what_cannot_be_reached_is_refused():
    singular = torch.diag(torch.tensor([1.0, 0.0])).double()
    with pytest.raises(ConvergenceError, match="too close to singular"):
        conjugate_gradients(
            lambda z: singular @ z, torch.ones(2).double(), torch.ones(2).double(), accuracy=1e-6
        )


DEPTHS_IN_FLOAT32 = {"min_norm": 6, "equal_share": 4}


@pytest.mark.parametrize("selection", ["min_norm", "equal_share"])
@pytest.mark.parametrize("depth", [2, 3, 4, 6, 8, 10])
def test_float32_directions_are_right_or_refused(depth, selection):
    """The docstring's limits: an answer misses the velocity by at most 1e-3, whatever the depth."""
    product, n = ng.MatrixProduct(depth), 12
    w = product.init_gaussian((n, n), scale=1.0, generator=generator(1), dtype=torch.float32)
    x, y = positions(n, n, 40, seed=2), randn(40, seed=3).float()
    try:
        v = ng.natural(ng.Gaussian(reduction="sum"), product, w, (x, y), selection=selection)
    except (ConvergenceError, RankDeficientError):
        assert depth > DEPTHS_IN_FLOAT32[selection]
        return
    wide, moved = (tuple(t.double() for t in part) for part in (w, v))
    u = torch.zeros(n, n, dtype=F64)
    u[x[:, 0], x[:, 1]] = y.double() - product.hypothesis(wide)[x[:, 0], x[:, 1]]
    assert float((product.push(wide, moved) - u).norm() / u.norm()) < 1.3e-3


def test_some_depth_is_refused_in_float32_that_float64_solves():
    product, n = ng.MatrixProduct(10), 12
    w = product.init_gaussian((n, n), scale=1.0, generator=generator(1))
    batch = positions(n, n, 40, seed=2), randn(40, seed=3)
    options = {"selection": "equal_share"}
    ng.natural(ng.Gaussian(reduction="sum"), product, w, batch, **options)
    narrow = tuple(t.float() for t in w)
    with pytest.raises((ConvergenceError, RankDeficientError)):
        ng.natural(
            ng.Gaussian(reduction="sum"), product, narrow, (batch[0], batch[1].float()), **options
        )


def test_rank_deficient_factors_take_the_nearest_velocity():
    """min_norm: least squares on what is left; equal share: refused by name."""
    w = (with_spectrum(6, 6, [2, 1, 0.5], seed=1), with_spectrum(6, 6, [1, 0.3], seed=2))
    product, u = ng.MatrixProduct(2), randn(6, 6, seed=3)
    v = product.natural_lift(w, u, None, 0.0)
    missed = u - product.push(w, v)
    # What is missed is orthogonal to everything the factors can produce.
    assert float(torch.stack([t.norm() for t in product.pull(w, missed)]).max()) < 1e-10
    with pytest.raises(RankDeficientError, match="needs rank 6"):
        product.natural_lift(w, u, (0.5, 0.5), 0.0)
