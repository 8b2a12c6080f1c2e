"""[BLH18] §5 as printed, and the same method with the last error factor known."""

import pytest
import torch

from natgrad import Categorical, Gaussian
from natgrad.errors import InvalidInputError
from natgrad.optim import NGD, Factors
from tests.helpers import F64, assert_near, randn
from tests.optim.nets import factors_of, mlp, seeded, train

X, Y = randn(8, 3, seed=1), randn(8, 2, seed=2)


def after_a_step(make, **options):
    optimizer = make(seeded(lambda: mlp(3, 5, 2)), Gaussian(), **options)
    train(optimizer, optimizer.likelihood, X, Y, 1)
    return factors_of(optimizer)


@pytest.mark.parametrize("samples", [1, 3])
def test_every_error_factor_of_the_published_method_is_sampled(samples):
    """The draws again by hand: errors of a unit Gaussian, sent back by the chain rule."""
    first, last = after_a_step(NGD.published, samples=samples).values()
    source = torch.Generator().manual_seed(0)
    drawn = torch.stack([torch.randn(8, 2, dtype=F64, generator=source) for _ in range(samples)])
    model = seeded(lambda: mlp(3, 5, 2))
    slope = 1 - torch.tanh(model[0](X)).square()
    back = (drawn @ model[2].weight) * slope
    assert_near(last[1], torch.einsum("kni,knj->ij", drawn, drawn) / (8 * samples), 1e-12)
    assert_near(first[1], torch.einsum("kni,knj->ij", back, back) / (8 * samples), 1e-12)


def test_the_known_output_is_the_likelihoods_fisher_and_all_else_is_as_published():
    sampled = after_a_step(NGD.published).values()
    known = after_a_step(NGD.known_output).values()
    for ours, theirs in zip(known, sampled, strict=True):
        assert torch.equal(ours[0], theirs[0])
    (ours, last), (theirs, _) = known, sampled
    assert torch.equal(ours[1], theirs[1])
    assert torch.equal(last[1], torch.eye(2, dtype=F64))


def test_the_known_output_takes_the_options_of_the_published_method():
    optimizer = NGD.known_output(seeded(lambda: mlp(3, 4)), Categorical(), damping=0.3, samples=2)
    assert (optimizer.damping.start, optimizer.factors.samples) == (0.3, 2)


@pytest.mark.parametrize("make", [NGD.published, NGD.known_output])
def test_two_ways_to_say_how_factors_are_estimated_are_refused(make):
    with pytest.raises(InvalidInputError, match=r"factors=Factors\(samples=2"):
        make(seeded(lambda: mlp(3, 2)), Gaussian(), samples=2, factors=Factors(memory=0))
