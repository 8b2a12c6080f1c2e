"""How results show themselves: a small table in a notebook, and axes to draw on."""

import html
from collections.abc import Iterable
from typing import TYPE_CHECKING

from natgrad.errors import InvalidInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def as_table(title: str, rows: Iterable[tuple[object, ...]], head: Iterable[str] = ()) -> str:
    """Return an HTML table with a title; all text is escaped.

    Example:
        >>> as_table("Limit", [("value", 1 < 2)])
        '<table><caption>Limit</caption><tr><td>value</td><td>True</td></tr></table>'
    """

    def line(cells: Iterable[object], tag: str) -> str:
        inside = "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
        return f"<tr>{inside}</tr>"

    head = list(head)
    first = line(head, "th") if head else ""
    body = "".join(line(row, "td") for row in rows)
    return f"<table><caption>{html.escape(title)}</caption>{first}{body}</table>"


def axes_or_new(ax: "Axes | None") -> "Axes":
    """Return the axes, or those of a new figure.

    Raises:
        InvalidInputError: If these are not axes, or matplotlib is not installed.
    """
    try:
        from matplotlib import pyplot
        from matplotlib.axes import Axes
    except ImportError as error:
        raise InvalidInputError(
            "pictures need matplotlib: pip install 'natgrad[lab]', or matplotlib alone."
        ) from error
    if ax is None:
        return pyplot.subplots(layout="constrained")[1]
    if not isinstance(ax, Axes):
        raise InvalidInputError(f"ax must be matplotlib axes, but is {type(ax).__name__}.")
    return ax
