"""Options of `natgrad.complete` and `natgrad complete`, declared once; importing them is cheap."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

__all__ = [
    "OPTIONS",
    "RENAMED",
    "SIZES",
    "Centering",
    "Choices",
    "Complete",
    "Data",
    "Prepared",
    "Preset",
    "TableOptions",
]

# As in natgrad.fits and natgrad.lab, which need torch and NumPy.
Centering = Literal["none", "mean", "means"]
Preset = Literal["smoke", "quick", "paper"]

_LARGEST_SCALE = 1e3  # products of larger factors overflow in single precision
_FEWEST = 10  # gradients; with fewer, no flow has taken a step


@dataclass(frozen=True, kw_only=True)
class Choices:
    """How to complete a matrix. Options that are None are set by the preset."""

    center: Centering = "mean"
    """What to subtract before fitting: nothing, the overall mean, or row and column means."""
    depths: tuple[int, ...] | None = None
    """Numbers of factors to choose from; by default those of the preset."""
    scales: tuple[float, ...] | None = None
    """Initial scales to choose from; by default those of the preset."""
    hidden: int = 64
    """Width between factors, which is the highest rank that can be found."""
    ranks: tuple[int, ...] | None = None
    """Ranks to choose from for plain factorization UV; by default those of the preset."""
    max_evaluations: int | None = None
    """Gradients after which a fit ends; by default the preset's number."""
    held_out: float = 0.1
    """Share of the entries held out for validation, and for testing."""
    seed: int = 0
    """Seed of the division and of initial factors."""


OPTIONS = tuple(field.name for field in fields(Choices))
"""Keywords of `natgrad.complete` and options of the command."""

RENAMED = {"centring": "center"}
"""New names of options by their old names, which warn for one release."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(Choices):
    """How to complete a table in a file."""

    test: Path | None = None
    """A table of test entries; without it a share of DATA is held out for testing."""
    names: tuple[str, str, str] | None = None
    """Names of the columns that hold row, column and value; by default the first three."""
    save: Path | None = None
    """File for the completed matrix (.csv, .parquet, .safetensors); by default beside the
    report."""

    @property
    def choices(self) -> dict[str, Any]:
        """Return the options of `natgrad.complete` among these."""
        return {name: getattr(self, name) for name in OPTIONS}


@dataclass(frozen=True, kw_only=True)
class Data:
    """A user's table, identified by its contents and its path."""

    path: str
    digest: str
    test_path: str | None = None
    test_digest: str | None = None
    names: tuple[str, str, str] | None = None


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """How a table is divided.

    Attributes:
        held_out: Share of the entries held out for validation, and for testing.
        seed: Seed of the division and of initial factors.
    """

    held_out: float = 0.1
    seed: int = 0


SIZES: Mapping[Preset, Mapping[str, Any]] = {
    "smoke": {"scales": (1e-3,), "ranks": (2, 5), "max_evaluations": 500},
    "quick": {},
    "paper": {"depths": (2, 3, 4), "scales": (1.0, 1e-1, 1e-2, 1e-3, 1e-6)},
}
"""What each preset changes in `Complete`."""


@dataclass(frozen=True, kw_only=True)
class Complete(Choices):
    """How to complete a table of (row, column, value), with the choices of the quick preset."""

    data: Data
    """The table and the test entries."""
    depths: tuple[int, ...] = (2, 3)
    scales: tuple[float, ...] = (1e-1, 1e-3, 1e-6)
    ranks: tuple[int, ...] = (1, 2, 3, 5, 8, 13, 21)
    max_evaluations: int = 3000

    def __post_init__(self) -> None:
        """Refuse options that cannot be fitted."""
        from natgrad._checks import choice, integer, number
        from natgrad.experiments._arguments import DEEPEST, integers, positive

        checked = {
            "center": choice(self.center, "center", get_args(Centering)),
            # Depth 1 does not move unobserved entries.
            "depths": integers(self.depths, "depths", low=2, high=DEEPEST),
            "scales": positive(self.scales, "scales", high=_LARGEST_SCALE),
            "hidden": integer(self.hidden, "hidden", low=1),
            "ranks": integers(self.ranks, "ranks", low=1),
            "max_evaluations": integer(self.max_evaluations, "max_evaluations", low=_FEWEST),
            "held_out": number(
                self.held_out, "held_out", low=0, low_open=True, high=0.5, high_open=True
            ),
            "seed": integer(self.seed, "seed", low=0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def how(self) -> Prepared:
        """Return how the table is divided."""
        names = (field.name for field in fields(Prepared))
        return Prepared(**{name: getattr(self, name) for name in names})
