"""Columns as features: numbers with gaps, and texts one-hot."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from natgrad.data._columns import Floats, as_label, numbers
from natgrad.data._files import is_missing
from natgrad.errors import InvalidInputError

GAP = "(missing)"
"""Level of a missing text."""
OTHER = "(other)"
"""Level of rare texts together."""


class Encoded(NamedTuple):
    """A feature: its name, and its values, NaN where they are missing."""

    name: str
    values: Floats


@dataclass(frozen=True)
class Number:
    """A column of numbers; gaps stay NaN, and may be flagged by a further feature."""

    column: str
    flagged: bool = False

    def encode(self, values: Sequence[Any]) -> list[Encoded]:
        """Return the numbers, and the flags if they are wanted."""
        found = numbers(plain(values), self.column)
        if found is None:
            raise InvalidInputError(
                f"column {self.column!r} holds text here, but numbers in the data."
            )
        out = [Encoded(self.column, found)]
        if self.flagged:
            out.append(Encoded(f"{self.column} is missing", np.isnan(found).astype(np.float64)))
        return out


@dataclass(frozen=True)
class Levels:
    """A column of text, one feature per level; a text of two levels needs only the second."""

    column: str
    levels: tuple[str, ...]

    def encode(self, values: Sequence[Any]) -> list[Encoded]:
        """Return 1 where a row has the level, else 0."""
        known = set(self.levels)
        rest = OTHER if OTHER in known else ""
        texts = np.array(
            [text if text in known else rest for text in texts_of(values)], dtype=object
        )
        shown = self.levels[1:] if len(self.levels) == 2 else self.levels
        return [
            Encoded(f"{self.column}={level}", (texts == level).astype(np.float64))
            for level in shown
        ]


def plain(values: Sequence[Any]) -> list[Any]:
    """Return a column with None for pandas' own marks of gaps."""
    return [None if _is_gap(value) else value for value in values]


def texts_of(values: Sequence[Any]) -> list[str]:
    """Return a column of text; gaps are a level."""
    return [GAP if _is_gap(value) else as_label(value) or GAP for value in values]


def _is_gap(value: Any) -> bool:
    return is_missing(value) or type(value).__name__ in ("NAType", "NaTType")
