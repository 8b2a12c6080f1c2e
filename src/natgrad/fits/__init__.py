"""Fits to a user's data: separators of two classes, and completions of a matrix.

The scikit-learn estimators and the laboratory call the same functions.
"""

from natgrad.fits.completion import (
    Center,
    Entries,
    LowRankModel,
    NuclearFit,
    ProductFit,
    fit_nuclear_norm,
    fit_product,
    rmse,
)
from natgrad.fits.separators import Scaling, Separator, correct, fit_separator, methods

__all__ = [
    "Center",
    "Entries",
    "LowRankModel",
    "NuclearFit",
    "ProductFit",
    "Scaling",
    "Separator",
    "correct",
    "fit_nuclear_norm",
    "fit_product",
    "fit_separator",
    "methods",
    "rmse",
]
