"""The definition of a figure: configs by preset, a computation from sweeps, claims, a drawing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

if TYPE_CHECKING:  # a list of figures must not wait for torch, numpy and matplotlib
    from matplotlib.figure import Figure

    from natgrad.lab.arrays import Arrays
    from natgrad.lab.cell import Cell, Result
    from natgrad.lab.claim import Claim

__all__ = [
    "PRESETS",
    "Experiment",
    "Preset",
    "Sweep",
    "from_folder",
    "in_this_process",
    "no_departures",
]

Preset = Literal["smoke", "quick", "paper"]
PRESETS: tuple[Preset, ...] = ("smoke", "quick", "paper")

_C = TypeVar("_C")


class Sweep(Protocol):
    """Run cells, here or elsewhere, and return their results in order.

    Example:
        >>> sweep: Sweep = in_this_process
        >>> sweep([])
        []
    """

    def __call__(self, cells: "Sequence[Cell]", title: str = "") -> "list[Result]":
        """Return one result per cell, stored ones reused; raise `CellsFailedError` if any fails."""
        ...


def in_this_process(cells: "Sequence[Cell]", title: str = "") -> "list[Result]":
    """Return the results of cells run here, one after the other, storing nothing: a `Sweep`.

    Example:
        >>> in_this_process([], "nothing to do")
        []
    """
    return [cell.run() for cell in cells]


def no_departures(config: Any, arrays: "Arrays") -> Sequence[str]:
    """Return no departures, for a figure that follows the paper in everything.

    Example:
        >>> no_departures(None, None)
        ()
    """
    return ()


@dataclass(frozen=True, kw_only=True)
class Experiment(Generic[_C]):
    """A figure as data.

    Attributes:
        name: As typed on the command line: "kmh21/fig4".
        title: What it shows, in a sentence without a full stop.
        source: Where it is printed.
        story: Three sentences that lead to the title: the question, what is seen, what it means.
        table: Return a table for the report, as plain values: `heads`, `rows` of words, and a
            `note` about them.
        tell: Return the story where it depends on the result, as for a user's own data.
        presets: A config for each preset. Its fields are the command line's options, and their
            docstrings its help.
        minutes: Expected minutes on two cores, by preset.
        compute: Return the arrays of the figure, from sweeps over cells.
        claims: Return the claims that these arrays decide.
        draw: Return the picture of these arrays, computing nothing.
        departures: Return sentences: our choices where the paper is silent, and where our result
            differs from its text.

    Example:
        >>> from natgrad.lab.registry import experiment
        >>> figure: Experiment = experiment("kmh21/fig4")
        >>> figure.folder, figure.source
        ('kmh21-fig4', '[KMH21] Figure 4')
    """

    name: str
    title: str
    source: str
    presets: Mapping[Preset, _C]
    minutes: Mapping[Preset, float]
    compute: Callable[[_C, Sweep], "Arrays"]
    claims: Callable[[_C, "Arrays"], "Sequence[Claim]"]
    draw: Callable[[_C, "Arrays"], "Figure"]
    departures: Callable[[_C, "Arrays"], Sequence[str]] = no_departures
    story: str = ""
    tell: Callable[[_C, "Arrays"], str] | None = None
    table: Callable[[_C, "Arrays"], dict[str, Any]] | None = None

    @property
    def folder(self) -> str:
        """Return the name of its folder below the output folder: "kmh21-fig4"."""
        return self.name.replace("/", "-")


def from_folder(package: str, *, table: bool = False) -> dict[str, Any]:
    """Return `compute`, `claims`, `departures` and `draw` of a figure that has its own folder.

    They are `cells.compute`, `claims.claims`, `claims.departures` and `draw.draw` of the package.
    Each module is imported when its function is first called, so that a config costs nothing.

    Args:
        package: The figure's package; `__package__` in its `config.py`.
        table: Whether it has a `table.table` as well.

    Example:
        >>> sorted(from_folder("natgrad.experiments.kmh21.fig4"))
        ['claims', 'compute', 'departures', 'draw']
    """
    more = {"table": _imported_later(f"{package}.table", "table")} if table else {}
    return more | {
        "compute": _imported_later(f"{package}.cells", "compute"),
        "claims": _imported_later(f"{package}.claims", "claims"),
        "departures": _imported_later(f"{package}.claims", "departures"),
        "draw": _imported_later(f"{package}.draw", "draw"),
    }


def _imported_later(module: str, name: str) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        return getattr(import_module(module), name)(*arguments)

    return call
