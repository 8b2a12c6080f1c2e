"""Likelihoods and a parametrization that are not part of the library: one file each."""

from tests.extensions.exponential import Exponential
from tests.extensions.squares import Squares
from tests.extensions.student import Student

__all__ = ["Exponential", "Squares", "Student"]
