"""The problems of the race."""

from collections.abc import Callable
from functools import lru_cache

from natgrad.errors import InvalidInputError
from natgrad.experiments.race.problems import pictures, tables, texts
from natgrad.experiments.race.problems.problem import Kind, Part, Problem

__all__ = ["ABOUT", "DEVELOPED", "Kind", "Part", "Problem", "load"]

_PROBLEMS: dict[str, Callable[[], Problem]] = {
    "autoencoder": pictures.autoencoder,
    "classifier": pictures.classifier,
    "transformer": texts.transformer,
    "table": tables.table,
    "residual": pictures.residual,
    "tied": texts.tied,
    "picture": pictures.picture,
    "vae": pictures.variational,
    "noisy": tables.noisy,
    "recurrent": texts.recurrent,
    "digits": pictures.digits,
}
DEVELOPED = ("autoencoder", "classifier", "transformer", "residual", "noisy")
"""The problems that NGD was developed on; the others are only reported on."""

ABOUT = {
    "autoencoder": "MNIST autoencoder 784-400-200-100-50-100-200-400-784, tanh; MSE per pixel",
    "classifier": "convolutional classifier on Fashion-MNIST; cross-entropy",
    "transformer": "two-layer transformer on the text of Python's help(); nats per character",
    "table": "perceptron 10-32-32-1 on scikit-learn's diabetes table; MSE of the standardized "
    "outcome",
    "digits": "autoencoder 64-32-10-32-64 on scikit-learn's digits; MSE per pixel",
    "residual": "residual network with batch normalization on Fashion-MNIST; cross-entropy",
    "tied": "transformer with tied embeddings on the text of Python's help(); nats per character",
    "recurrent": "GRU on the text of Python's help(); nats per character",
    "picture": "SIREN 2-264-264-264-264-1 on a sheet of 64 pictures; MSE per point",
    "vae": "variational autoencoder 784-400-32-400-784 on MNIST; negative evidence bound, nats",
    "noisy": "perceptron 10-128-128-1 on Friedman's function with outliers; MSE without noise",
}
"""What each problem is."""


@lru_cache(maxsize=1)
def load(name: str) -> Problem:
    """Return a problem with its data.

    Raises:
        InvalidInputError: If there is no such problem, or its data are not available.

    Example:
        >>> problem = load("table")
        >>> len(problem.train), len(problem.validation), len(problem.test)
        (264, 89, 89)
    """
    if name not in _PROBLEMS:
        raise InvalidInputError(f"problems are {', '.join(_PROBLEMS)}, not {name!r}.")
    return _PROBLEMS[name]()
