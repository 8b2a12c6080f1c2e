"""Options of `natgrad.compare` and `natgrad compare`, declared once; importing them is cheap."""

from dataclasses import dataclass, fields

__all__ = ["OPTIONS", "RENAMED", "Choices", "Compare", "Data", "Prepared"]

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
    """Parts of the cross-validation, when no test table is given."""
    seed: int = 0
    """Seed of the cross-validation."""


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
    classes: tuple[str, str] | None = None
    test_path: str | None = None
    test_digest: str | None = None
    unlabeled_path: str | None = None
    unlabeled_digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """How rows become inputs.

    Attributes:
        standardize: Center each feature and divide it by its standard deviation, both taken from
            the training rows.
        intercept: Put a constant feature of value 1 first.
        folds: Number of parts of a cross-validation.
        seed: Seed of the division into parts.
    """

    standardize: bool = True
    intercept: bool = True
    folds: int = 5
    seed: int = 0


@dataclass(frozen=True, kw_only=True)
class Compare(Choices):
    """How to compare separators on a table."""

    data: Data
    """The table, the column of labels, and further tables."""

    def __post_init__(self) -> None:
        """Refuse options that cannot be fitted."""
        from natgrad._checks import flag, integer, number
        from natgrad.experiments._arguments import DEEPEST, integers

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
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def how(self) -> Prepared:
        """Return how rows become inputs."""
        names = (field.name for field in fields(Prepared))
        return Prepared(**{name: getattr(self, name) for name in names})
