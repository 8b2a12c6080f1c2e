"""What a new class must define, and no more."""

import torch
from torch import Tensor

from natgrad import Bernoulli, Fisher, Gaussian, natural, natural_ntk, ntk, reference
from natgrad.likelihoods import Huber, Poisson
from natgrad.parametrizations import Parametrization
from tests.extensions import Exponential, Squares, Student
from tests.helpers import F64, assert_near, randn, signs


class Sine(Parametrization[Tensor]):
    """Two outputs sin(x·w), cos(x·w): only what the contract asks for."""

    def check(self, params: Tensor) -> None:
        assert params.ndim == 1

    def check_inputs(self, params: Tensor, x: Tensor) -> None:
        assert x.ndim == 2

    def predict(self, params: Tensor, x: Tensor) -> Tensor:
        angle = x @ params
        return torch.stack([torch.sin(angle), torch.cos(angle)], dim=1)


def test_a_model_that_only_predicts_has_a_natural_direction():
    w, x = randn(3, seed=0), randn(5, 3, seed=1)
    for likelihood, y in (
        (Gaussian(), randn(5, 2, seed=2)),
        (Bernoulli(), signs(10, seed=3).reshape(5, 2)),
    ):
        for damping in (0.0, 0.1):
            v = natural(likelihood, Sine(), w, (x, y), damping=damping)
            expected = reference.natural(likelihood, Sine(), w, (x, y), damping=damping)
            assert_near(v, expected, 1e-9)
        over = randn(20, 3, seed=4)
        v = natural(likelihood, Sine(), w, (x, y), fisher_over=over)
        expected = reference.natural(likelihood, Sine(), w, (x, y), fisher_x=over, factor=1 / 20)
        assert_near(v, expected, 1e-9)


def test_a_model_that_only_predicts_has_kernels_and_a_fisher():
    w, x = randn(3, seed=0), randn(5, 3, seed=1)
    j = reference.jacobian(Sine(), w, x).flatten(0, 1)
    fisher = reference.fisher(Gaussian(), Sine(), w, x)
    assert_near(ntk(Sine(), w, x).reshape(10, 10), j @ j.mT, 1e-12)
    natural_kernel = j @ torch.linalg.inv(fisher) @ j.mT
    assert_near(natural_ntk(Gaussian(), Sine(), w, x).reshape(10, 10), natural_kernel, 1e-9)
    assert_near(Fisher(Gaussian(), Sine(), w, x).dense(), fisher, 1e-12)


def test_linear_hypotheses_know_what_they_can_reach():
    """By the rank of their Jacobian, unless they say how to know it sooner."""
    w = torch.tensor([[1.0, 0.0, 2.0], [3.0, 0.0, 1.0]], dtype=F64)
    assert not Squares().surjective(w)
    assert Squares().surjective(w + 1)
    u = torch.tensor([[1.0, 2.0, 3.0]], dtype=F64)
    assert_near(Squares().reachable(w, u), torch.tensor([[1.0, 0.0, 3.0]], dtype=F64), 1e-12)


def test_drawn_labels_have_the_fisher_as_the_covariance_of_their_scores():
    source = torch.Generator().manual_seed(0)
    for likelihood in (Poisson(), Huber(0.5), Student(), Exponential()):
        f = torch.full((200_000, 1), 0.3, dtype=F64)
        errors = likelihood.sampled_errors(f, generator=source)
        fisher = float(likelihood.mean_fisher(f[:1]))
        assert abs(float(errors.mean())) < 0.01
        assert abs(float(errors.square().mean()) / fisher - 1) < 0.02
