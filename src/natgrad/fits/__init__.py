"""Fits to a user's data: separators of classes, and completions of a matrix.

The scikit-learn estimators and the laboratory call the same functions.
"""

from natgrad.fits._averaged import AveragedFit, fit_averaged
from natgrad.fits.classes import (
    PENALTIES,
    balanced_rows,
    fit_classes,
    log_probabilities,
    predicted,
)
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
from natgrad.fits.penalties import fit_penalty
from natgrad.fits.separators import Scaling, Separator, correct, fit_separator, methods

__all__ = [
    "PENALTIES",
    "AveragedFit",
    "Center",
    "Entries",
    "LowRankModel",
    "NuclearFit",
    "ProductFit",
    "Scaling",
    "Separator",
    "balanced_rows",
    "correct",
    "fit_averaged",
    "fit_classes",
    "fit_nuclear_norm",
    "fit_penalty",
    "fit_product",
    "fit_separator",
    "log_probabilities",
    "methods",
    "predicted",
    "rmse",
]
