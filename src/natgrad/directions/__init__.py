"""Directions of descent, their Fisher matrices, and their tangent kernels."""

from natgrad.directions._euclidean import euclidean
from natgrad.directions._fisher import Fisher
from natgrad.directions._kernels import natural_ntk, ntk
from natgrad.directions._natural import natural
from natgrad.directions.fisher_over import FisherOver, GaussianInputs
from natgrad.directions.metric import OutputMetric, Wasserstein, kernel_wasserstein
from natgrad.directions.selection import LayerShares, Selection

__all__ = [
    "Fisher",
    "FisherOver",
    "GaussianInputs",
    "LayerShares",
    "OutputMetric",
    "Selection",
    "Wasserstein",
    "euclidean",
    "kernel_wasserstein",
    "natural",
    "natural_ntk",
    "ntk",
]
