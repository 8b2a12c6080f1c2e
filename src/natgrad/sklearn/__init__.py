"""Estimators for scikit-learn. They need the extra `sklearn`."""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as _error:
    raise ImportError(
        "natgrad.sklearn needs scikit-learn: pip install 'natgrad[sklearn]'."
    ) from _error

from natgrad.sklearn._completion import DeepMatrixCompletion
from natgrad.sklearn._displays import HeldOutDisplay, SeparatorDisplay
from natgrad.sklearn._imputer import DeepMatrixImputer
from natgrad.sklearn._networks import NGDClassifier, NGDRegressor
from natgrad.sklearn._separator import SeparatorClassifier

__all__ = [
    "DeepMatrixCompletion",
    "DeepMatrixImputer",
    "HeldOutDisplay",
    "NGDClassifier",
    "NGDRegressor",
    "SeparatorClassifier",
    "SeparatorDisplay",
]
