"""Against dense Kronecker matrices: vec(A V B) = (A ⊗ Bᵀ) vec V, row-major."""

import pytest
import torch
from torch import Tensor

from natgrad.errors import ConvergenceError
from natgrad.linalg import kronecker_lstsq, reachable
from natgrad.parametrizations._products.lift import partial_products
from tests.helpers import F64, assert_near, chain, kron, orthonormal, pinv, randn

WIDTHS = {
    "1": (3, 4),
    "2": (3, 3, 3),
    "2-wide": (3, 5, 4),
    "2-bottleneck": (4, 2, 5),
    "3": (3, 3, 3, 3),
    "3-rectangular": (2, 4, 3, 5),
    "3-bottleneck": (4, 2, 3, 4),
    "4": (3, 3, 3, 3, 3),
    "4-bottleneck": (4, 3, 1, 3, 4),
    "5": (3, 3, 3, 3, 3, 3),
    "5-rectangular": (2, 3, 4, 4, 3, 2),
    "5-two-bottlenecks": (4, 2, 3, 3, 2, 4),
}


def factors(name: str) -> tuple[Tensor, ...]:
    return chain(WIDTHS[name], seed=10 * list(WIDTHS).index(name))


def singular(widths: tuple[int, ...], layer: int, seed: int) -> tuple[Tensor, ...]:
    """Factors with one that is rank-deficient although it is not a bottleneck."""
    ws = list(chain(widths, seed))
    u, s, vh = torch.linalg.svd(ws[layer], full_matrices=False)
    s[-1] = 0
    ws[layer] = (u * s) @ vh
    return tuple(ws)


def dense(left, right, n: int, m: int) -> Tensor:
    eye_n, eye_m = torch.eye(n, dtype=F64), torch.eye(m, dtype=F64)
    blocks = [
        kron(eye_n if a is None else a, eye_m if b is None else b.mT)
        for a, b in zip(left, right, strict=True)
    ]
    return torch.cat(blocks, dim=1)


def flat(parts) -> Tensor:
    return torch.cat([v.reshape(-1) for v in parts])


PROBLEMS = {name: factors(name) for name in WIDTHS} | {
    f"singular-{depth}-{layer}": singular((3,) * (depth + 1), layer, seed=7 * depth + layer)
    for depth in (2, 3, 4)
    for layer in range(depth)
}


@pytest.fixture(params=PROBLEMS)
def problem(request):
    ws = PROBLEMS[request.param]
    n, m = ws[0].shape[0], ws[-1].shape[1]
    left, right = partial_products(ws)
    return left, right, dense(left, right, n, m), randn(n, m, seed=99)


def test_reachable_is_the_dense_projector(problem):
    left, right, j, u = problem
    expected = (j @ pinv(j, 1e-11) @ u.reshape(-1)).reshape(u.shape)
    assert_near(reachable(left, right, u), expected, 1e-10)


def test_reachable_takes_a_stack(problem):
    left, right, _, u = problem
    stack = torch.stack([u, 2 * u, u.flip(0)])
    expected = torch.stack([reachable(left, right, v) for v in stack])
    assert_near(reachable(left, right, stack), expected, 1e-13)


def test_shortest_solution_is_that_of_the_pseudo_inverse(problem):
    left, right, j, u = problem
    inverse = pinv(j, 1e-11)
    seen = (j @ inverse @ u.reshape(-1)).reshape(u.shape)
    v = kronecker_lstsq(left, right, seen)
    assert_near(j @ flat(v), seen.reshape(-1), 1e-9)
    assert_near(flat(v), inverse @ u.reshape(-1), 1e-8)


@pytest.mark.parametrize("damping", [1e-6, 1e-2, 10.0])
def test_damped_solution(problem, damping):
    left, right, j, u = problem
    kernel = j @ j.mT + damping * torch.eye(u.numel(), dtype=F64)
    expected = j.mT @ torch.linalg.solve(kernel, u.reshape(-1))
    assert_near(flat(kronecker_lstsq(left, right, u, damping=damping)), expected, 1e-8)


def test_parts_have_the_shapes_of_the_factors():
    ws = factors("5-rectangular")
    u = randn(2, 2, seed=1)
    parts = kronecker_lstsq(*partial_products(ws), u)
    assert [v.shape for v in parts] == [w.shape for w in ws]


def test_zero_velocity_needs_no_motion():
    ws = factors("3")
    parts = kronecker_lstsq(*partial_products(ws), torch.zeros(3, 3, dtype=F64))
    assert not any(bool(v.any()) for v in parts)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
@pytest.mark.parametrize("name", ["2", "3"])
def test_scale_of_the_velocity_does_not_matter(name, scale):
    sides, u = partial_products(factors(name)), randn(3, 3, seed=2)
    expected = flat(kronecker_lstsq(*sides, u))
    assert_near(flat(kronecker_lstsq(*sides, scale * u)) / scale, expected, 1e-11)


@pytest.mark.parametrize("name", WIDTHS)
def test_single_precision_agrees_with_double(name):
    ws = factors(name)
    n, m = ws[0].shape[0], ws[-1].shape[1]
    single = partial_products([w.float() for w in ws])
    left, right = partial_products(ws)
    j = dense(left, right, n, m)
    inverse = pinv(j, 1e-11)
    u = (j @ inverse @ randn(n, m, seed=99).reshape(-1)).reshape(n, m)
    projected = reachable(*single, randn(n, m, seed=99).float())
    assert projected.dtype == torch.float32
    assert_near(projected, u, 1e-4)
    v = kronecker_lstsq(*single, projected)
    assert_near(j @ flat(v).double(), u.reshape(-1), 1e-3)


def scaled(depth: int, smallest: float) -> tuple[Tensor, ...]:
    """Factors of size 4 whose singular values fall from 1 to `smallest`."""
    values = torch.logspace(0, torch.log10(torch.tensor(smallest)).item(), 4, dtype=F64)
    return tuple(
        (orthonormal(4, 4, 30 + i) * values) @ orthonormal(4, 4, 60 + i).mT for i in range(depth)
    )


@pytest.mark.parametrize("smallest", [1e-2, 1e-4, 1e-6, 1e-9, 1e-12])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_ill_conditioned_factors_are_solved_or_refused(depth, smallest):
    """The target velocity is reachable, so it must be reached, or an error raised."""
    left, right = partial_products(scaled(depth, smallest))
    j, u = dense(left, right, 4, 4), randn(4, 4, seed=5)
    try:
        v = kronecker_lstsq(left, right, u)
    except ConvergenceError:
        return
    assert_near(j @ flat(v), u.reshape(-1), 1e-6)


def test_unreachable_velocity_is_refused():
    """Conjugate gradients must not return quietly on an inconsistent system."""
    left, right = partial_products(factors("3-bottleneck"))
    with pytest.raises(ConvergenceError, match=r"relative residual of .* damping"):
        kronecker_lstsq(left, right, randn(4, 4, seed=6))
