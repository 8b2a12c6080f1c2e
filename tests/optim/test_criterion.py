"""What the optimizer asks of a likelihood."""

import copy
import pickle

import pytest
import torch
from torch import Tensor

from natgrad import Bernoulli, Categorical, Gaussian
from natgrad.errors import NonFiniteError
from natgrad.likelihoods import Likelihood, Root
from natgrad.likelihoods.base import all_finite
from natgrad.optim import NGD
from tests.helpers import F64, assert_near, generator, randn
from tests.optim.nets import mlp, seeded, train

COVARIANCE = torch.tensor([[2.0, 0.6, 0.1], [0.6, 1.0, -0.3], [0.1, -0.3, 0.5]], dtype=F64)
LIKELIHOODS = {
    "bernoulli": Bernoulli(),
    "bernoulli-01": Bernoulli(zero_one=True, reduction="sum"),
    "categorical": Categorical(),
    "categorical-sum": Categorical(reduction="sum"),
    "gaussian": Gaussian(),
    "gaussian-covariance": Gaussian(COVARIANCE),
}


class Poisson(Likelihood):
    """Counts y with rate e^f: what a user writes for a likelihood of their own."""

    def root(self, output: Tensor) -> Root:
        return Root(None, output.reshape(len(output), -1) / 2)

    def _sample(self, output: Tensor, generator: torch.Generator | None) -> Tensor:
        return torch.poisson(output.exp(), generator=generator)

    def _losses(self, f: Tensor, y: Tensor) -> Tensor:
        return (f.exp() - y * f).sum(1)

    def _gradient(self, f: Tensor, y: Tensor) -> Tensor:
        return f.exp() - y

    def _fisher(self, f: Tensor) -> Tensor:
        return torch.diag_embed(f.exp())

    def _target(self, f: Tensor, y: Tensor) -> Tensor:
        return y * (-f).exp() - 1

    def _check_labels(self, f: Tensor, y: Tensor) -> Tensor:
        return y.reshape(f.shape).to(f.dtype)


@pytest.mark.parametrize("likelihood", [*LIKELIHOODS.values(), Poisson()], ids=repr)
def test_products_and_averages_are_those_of_the_blocks(likelihood):
    f, u = 2 * randn(7, 3, seed=1), randn(7, 3, seed=2)
    blocks = likelihood.fisher(f) / likelihood.scale(7)
    assert_near(likelihood.fisher_product(f, u), torch.einsum("nij,nj->ni", blocks, u), 1e-12)
    assert_near(likelihood.mean_fisher(f), blocks.mean(0), 1e-12)


@pytest.mark.parametrize("likelihood", [*LIKELIHOODS.values(), Poisson()], ids=repr)
def test_sampled_errors_have_the_fisher_as_covariance(likelihood):
    n = 40000
    f = randn(1, 3, seed=3).expand(n, 3).contiguous()
    errors = likelihood.sampled_errors(f, generator=generator(4))
    truth = likelihood.mean_fisher(f[:1])
    scale = float(truth.diagonal().max())
    assert float((errors.mT @ errors / n - truth).abs().max()) < 8 * scale / n**0.5
    assert float(errors.mean(0).abs().max()) < 5 * (scale / n) ** 0.5


def test_sampled_errors_keep_the_shape():
    f = randn(4, 2, 3, seed=5)
    assert Gaussian().sampled_errors(f, generator=generator(6)).shape == f.shape
    with pytest.raises(NonFiniteError):
        Gaussian().sampled_errors(torch.full((1, 1), float("nan")))


def test_only_the_gaussian_has_a_constant_fisher():
    constant = {name for name, found in LIKELIHOODS.items() if found.constant_fisher}
    assert constant == {"gaussian", "gaussian-covariance"}


def test_listeners_hear_every_call_and_are_not_copied():
    criterion, heard = Gaussian(), []
    handle = criterion.observe(lambda output, y, loss: heard.append(float(loss)))
    f, y = torch.zeros(2, 1), torch.ones(2, 1)
    criterion(f, y)
    criterion.loss(f, y)
    for copied in (copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))):
        copied(f, y)
    assert heard == [0.5, 0.5]
    handle.remove()
    criterion(f, y)
    assert heard == [0.5, 0.5]


def test_a_huge_sum_of_finite_numbers_is_finite():
    largest = torch.finfo(torch.float32).max
    assert all_finite(torch.tensor([largest, largest]))
    assert not all_finite(torch.tensor([1.0, float("inf")]))
    assert not all_finite(torch.tensor([float("inf"), -float("inf")]))


def test_a_likelihood_of_ones_own_trains():
    model, criterion = seeded(lambda: mlp(3, 6, 2)), Poisson()
    x = randn(60, 3, seed=7)
    y = torch.poisson(torch.exp(x[:, :2]), generator=generator(8))
    losses = train(NGD(model, criterion), criterion, x, y, 30)
    best = criterion(x[:, :2], y)
    assert losses[-1] < float(best) < losses[0]
