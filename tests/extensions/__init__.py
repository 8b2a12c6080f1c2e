"""Likelihoods and a parametrization that the library does not know: one file each."""

from tests.extensions.exponential import Exponential
from tests.extensions.squares import Squares
from tests.extensions.student import Student

__all__ = ["Exponential", "Squares", "Student"]
