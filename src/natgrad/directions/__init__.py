"""Directions to move along: the Euclidean and the natural gradient."""

from natgrad.directions.euclidean import euclidean
from natgrad.directions.fisher_inputs import FisherOver, GaussianInputs
from natgrad.directions.natural import natural
from natgrad.directions.selection import LayerShares, Selection

__all__ = ["FisherOver", "GaussianInputs", "LayerShares", "Selection", "euclidean", "natural"]
