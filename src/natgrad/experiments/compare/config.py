"""Options of `natgrad.compare` and `natgrad compare`, declared once; importing them is cheap."""

from dataclasses import dataclass, fields
from typing import Literal

__all__ = ["KINDS", "OPTIONS", "RENAMED", "Choices", "Compare", "Data", "Prepared"]

KINDS = ("separable", "quasi-separable", "not separable")
"""Kinds of data, as `natgrad.limits.separability` names them."""

_LARGEST_SCALE = 1e6  # products of larger factors overflow before they are fitted


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How to compare separators."""

    depths: tuple[int, ...] = (1, 2, 3, 4)
    """Depths L of EGD."""
    until: float = 1e6
    """Final time of EGD, on the mean loss."""
    natural_until: float = 10.0
    """Final time of NGD; its limit is computed separately."""
    scale: float = 0.1
    """Initial value of all factors of EGD except the first, which starts at zero."""
    standardize: bool = True
    """Center features and divide them by their standard deviations."""
    intercept: bool = True
    """Add a constant feature."""
    folds: int = 5
    """Parts of the cross-validation. With test rows it chooses only where to stop."""
    held_out: float | None = None
    """Share of rows to hold out once as test rows, instead of judging by the cross-validation."""
    seed: int = 0
    """Seed of the held-out rows and of the cross-validation."""
    categories: Literal["one-hot", "drop"] = "one-hot"
    """Columns of text: one feature per level, or left out."""
    missing: Literal["fill", "flag", "drop"] = "fill"
    """Gaps in numbers: filled with medians, filled and flagged by a feature, or rows left out."""
    drop: tuple[str, ...] = ()
    """Columns to leave out."""
    keep: tuple[str, ...] = ()
    """Columns to keep that would be left out: constant, a copy, a row number, too many texts."""
    class_weight: Literal["none", "balanced"] = "none"
    """Whether every row counts equally, or every class."""


OPTIONS = tuple(field.name for field in fields(Choices))
"""Keywords of `natgrad.compare` and options of the command."""

RENAMED = {"standardise": "standardize", "unlabelled": "unlabeled"}
"""New names of options by their old names, which warn for one release."""


@dataclass(frozen=True, kw_only=True)
class Data:
    """A user's tables, identified by their contents and their paths."""

    path: str
    digest: str
    label: str
    classes: tuple[str, ...] | None = None
    test_path: str | None = None
    test_digest: str | None = None
    unlabeled_path: str | None = None
    unlabeled_digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """How rows become inputs.

    The fields are those of `Choices`.
    """

    standardize: bool = True
    intercept: bool = True
    folds: int = 5
    held_out: float | None = None
    seed: int = 0
    categories: str = "one-hot"
    missing: str = "fill"
    drop: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    class_weight: str = "none"


@dataclass(frozen=True, kw_only=True)
class Compare(Choices):
    """How to compare separators on a table."""

    data: Data
    """The table, the column of labels, and further tables."""

    def __post_init__(self) -> None:
        """Refuse options that cannot be fitted."""
        from natgrad._checks import choice, flag, integer, number
        from natgrad.experiments._arguments import DEEPEST, integers, texts

        checked = {
            "depths": integers(self.depths, "depths", low=1, high=DEEPEST),
            **{
                name: number(getattr(self, name), name, low=0, low_open=True)
                for name in ("until", "natural_until")
            },
            "scale": number(self.scale, "scale", low=0, low_open=True, high=_LARGEST_SCALE),
            "standardize": flag(self.standardize, "standardize"),
            "intercept": flag(self.intercept, "intercept"),
            "folds": integer(self.folds, "folds", low=2),
            "seed": integer(self.seed, "seed", low=0),
            "categories": choice(self.categories, "categories", ("one-hot", "drop")),
            "missing": choice(self.missing, "missing", ("fill", "flag", "drop")),
            "drop": texts(self.drop, "drop"),
            "keep": texts(self.keep, "keep"),
            "class_weight": choice(self.class_weight, "class_weight", ("none", "balanced")),
        }
        if self.held_out is not None:
            checked["held_out"] = number(
                self.held_out, "held_out", low=0, low_open=True, high=1, high_open=True
            )
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def how(self) -> Prepared:
        """Return how rows become inputs."""
        names = (field.name for field in fields(Prepared))
        return Prepared(**{name: getattr(self, name) for name in names})
