"""Losses that are negative log-likelihoods, with their geometry in output space."""

from natgrad.likelihoods._root import Root, Whitened
from natgrad.likelihoods.base import Likelihood, Reduction
from natgrad.likelihoods.bernoulli import Bernoulli
from natgrad.likelihoods.categorical import Categorical
from natgrad.likelihoods.gaussian import Gaussian
from natgrad.likelihoods.huber import Huber
from natgrad.likelihoods.poisson import Poisson

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Huber",
    "Likelihood",
    "Poisson",
    "Reduction",
    "Root",
    "Whitened",
]
