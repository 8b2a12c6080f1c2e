"""The population Fisher of Gaussian inputs."""

import pytest
import scipy.integrate
import torch

import natgrad as ng
from tests.cases import randn


@pytest.mark.parametrize("r", [1e-6, 0.01, 0.5, 1.0, 4.0, 20.0, 300.0, 1e5])
def test_moments_against_adaptive_quadrature(r) -> None:
    def integrand(s: float, power: int) -> float:
        z = s / r
        logistic = 1 / (2 + 2 * float(torch.cosh(torch.tensor(s, dtype=torch.float64))))
        normal = float(torch.exp(torch.tensor(-z * z / 2, dtype=torch.float64)))
        return 2 * logistic * normal * z**power / ((2 * torch.pi) ** 0.5 * r)

    top = min(45.0, 12 * r)
    zeroth, second = (
        scipy.integrate.quad(integrand, 0, top, args=(p,), epsabs=0, epsrel=1e-13, limit=400)[0]
        for p in (0, 2)
    )
    a, c = ng.GaussianInputs().moments(r)
    assert abs(a - zeroth) < 1e-12 * zeroth
    assert abs(c - second) < 1e-11 * second


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("covariance", [None, "full"])
def test_a_large_sample_tends_to_the_closed_form(depth, covariance) -> None:
    draw = randn(0)
    root = draw(4, 4)
    c = None if covariance is None else root @ root.mT + torch.eye(4, dtype=torch.float64)
    factor = torch.eye(4, dtype=torch.float64) if c is None else torch.linalg.cholesky(c)
    x, y, w = draw(6, 4), torch.sign(draw(6)), draw(depth, 4)
    args = (ng.Bernoulli(), ng.Diagonal(depth), w, (x, y))
    exact = ng.natural(*args, fisher_over=ng.GaussianInputs(c))
    errors = []
    for m in (1_000, 100_000):
        sampled = ng.natural(*args, fisher_over=draw(m, 4) @ factor.mT)
        errors.append(float((sampled - exact).norm() / exact.norm()))
    assert errors[1] < 0.03
    assert errors[1] < errors[0] / 3  # 1/√m would be a tenth


def test_the_quick_route_equals_the_dense_one() -> None:
    """C = I has a closed inverse; the same with an explicit identity goes through rows."""
    draw = randn(1)
    x, y, beta = draw(7, 5), torch.sign(draw(7)), 3 * draw(5)
    args = (ng.Bernoulli(), ng.Direct(), beta, (x, y))
    eye = torch.eye(5, dtype=torch.float64)
    quick = ng.natural(*args, fisher_over=ng.GaussianInputs())
    dense = ng.natural(*args, fisher_over=ng.GaussianInputs(eye))
    assert torch.allclose(quick, dense, rtol=1e-11)


def test_underflowing_gradients_give_a_zero_velocity_not_nan() -> None:
    x = 2000 * torch.eye(3, dtype=torch.float64)
    beta = torch.ones(3, dtype=torch.float64)
    v = ng.natural(ng.Bernoulli(), ng.Direct(), beta, (x, beta), fisher_over=ng.GaussianInputs())
    assert bool((v == 0).all())
