"""Problems on the text of Python's help(): predict the next character."""

from collections.abc import Callable
from dataclasses import replace

from torch.nn import Module

from natgrad.experiments._data import text
from natgrad.experiments.race.problems import networks
from natgrad.experiments.race.problems.problem import Part, Problem

CONTEXT = 64
"""Characters that a network sees."""


def transformer() -> Problem:
    """Windows of the text, for a transformer."""
    found = text.documentation()
    size = len(found.tokens)
    parts = found.tokens.tensor_split([int(0.925 * size), int(0.95 * size)])
    strides = (CONTEXT // 4, CONTEXT, CONTEXT)
    train, validation, test = (
        Part(*text.windows(tokens, CONTEXT, stride))
        for tokens, stride in zip(parts, strides, strict=True)
    )
    vocabulary = len(found.characters)
    return Problem(
        "categories",
        lambda: networks.Transformer(vocabulary, CONTEXT),
        train,
        validation,
        test,
        (8, 16, 32, 64),
    )


def tied() -> Problem:
    """Return the same text for a transformer with tied embeddings."""
    return _with(lambda vocabulary: networks.Tied(vocabulary, CONTEXT))


def recurrent() -> Problem:
    """Return the same text for a recurrent network."""
    return _with(networks.Recurrent)


def _with(network: Callable[[int], Module]) -> Problem:
    vocabulary = len(text.documentation().characters)
    return replace(transformer(), network=lambda: network(vocabulary))
