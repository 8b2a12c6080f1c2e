"""Separators against the limits they tend to."""

import math

import numpy as np
import pytest
import torch

from natgrad.errors import InvalidInputError, NatgradError
from natgrad.fits import Scaling, correct, fit_separator, methods
from natgrad.limits import least_squares, max_margin
from tests.helpers import assert_near, randn


def clouds(gap: float, n: int = 30):
    """Two Gaussian clouds, `gap` apart along the first axis."""
    y = 2.0 * (torch.arange(n) % 2) - 1
    x = randn(n, 3, seed=0)
    x[:, 0] += gap * y
    return x, y.double()


@pytest.mark.parametrize("method", methods((1, 2, 3)))
def test_every_method_separates_separable_data(method):
    x, y = clouds(4.0)
    found = fit_separator(method, x, y, until=1e3)
    assert math.isnan(found.early)
    assert correct(found.beta, x, y).mean() == 1


def test_exact_methods_are_the_limits():
    x, y = clouds(4.0)
    for p in (1, 2):
        beta = fit_separator(f"ℓ{p} max margin", x, y).beta
        assert torch.equal(beta, max_margin(x, y, p).solution)
    assert torch.equal(fit_separator("least squares", x, y).beta, least_squares(x, y).solution)


def test_deep_flows_tend_to_their_margins():
    x, y = clouds(4.0)
    for depth, p in ((1, 2), (2, 1)):
        beta = fit_separator(f"EGD L={depth}", x, y, until=1e8).beta
        limit = max_margin(x, y, p).solution
        assert float(torch.cosine_similarity(beta, limit, dim=0)) > 0.99


def test_data_that_are_not_separable_have_no_margin_but_an_optimum():
    x, y = clouds(0.3)
    assert fit_separator("ℓ2 max margin", x, y).beta.isnan().all()
    late = fit_separator("NGD", x, y, natural_until=40.0).beta
    assert_near(late, fit_separator("limit of NGD", x, y).beta, 1e-6)


def test_the_population_fisher_is_averaged_over_the_inputs():
    x, y = clouds(1.5)
    further = torch.cat([x, 5 * randn(200, 3, seed=1)])
    own, wide = (fit_separator("NGD population", x, y, inputs=i).beta for i in (None, further))
    assert float(torch.linalg.vector_norm(own / own.norm() - wide / wide.norm())) > 1e-3


@pytest.mark.parametrize("name", ["NDG", "EGD L=two", "EGD L=", "EGD L=0", None, 3, ["NGD"]])
def test_unknown_methods_are_refused(name):
    with pytest.raises(InvalidInputError, match="there is no method"):
        fit_separator(name, *clouds(1.0))


def test_scaling_takes_features_of_any_size():
    rows = randn(20, 2, seed=2).numpy()
    plain, extreme = (
        Scaling.of(rows * size, standardize=True, intercept=False)(rows * size)
        for size in (np.ones(2), np.array([1e200, 1e-200]))
    )
    assert_near(plain, extreme, 1e-12)
    same = Scaling.of(rows, standardize=False, intercept=True)(rows)
    assert np.array_equal(same[:, 1:].numpy(), rows)
    assert bool((same[:, 0] == 1).all())


@pytest.mark.parametrize("name", ["x", "y", "inputs", "until", "natural_until", "scale"])
def test_bad_arguments_are_refused_in_a_sentence(name):
    x, y = clouds(1.0)
    odd = ["x", math.nan, -1, 1j, [], torch.ones(2), torch.ones(30, 3, device="meta"), object()]
    for value in odd:
        with pytest.raises(NatgradError, match=name) as caught:
            fit_separator("NGD population", **({"x": x, "y": y} | {name: value}))
        assert "\n" not in str(caught.value)
    with pytest.raises(NatgradError, match="labels -1 and 1"):
        fit_separator("least squares", x, 2 * y)
