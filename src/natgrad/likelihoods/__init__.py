"""Losses that are negative log-likelihoods, with their geometry in output space."""

from natgrad.likelihoods.base import Likelihood, Reduction, Root, Whitened
from natgrad.likelihoods.bernoulli import Bernoulli
from natgrad.likelihoods.categorical import Categorical
from natgrad.likelihoods.gaussian import Gaussian

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Likelihood",
    "Reduction",
    "Root",
    "Whitened",
]
