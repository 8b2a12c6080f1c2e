"""Where the panels of a picture are, written into the picture itself.

A box is (left, top, width, height) in fractions of the picture.
"""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Box = tuple[float, float, float, float]

_PAD = 0.006  # around each panel, so that no letter is cut
_MARK = re.compile(rb"panels:((?: \d\.\d{4}){4,})")


def panel_boxes(figure: "Figure") -> list[Box]:
    """Return the boxes of panels, legends and texts, row by row; those that overlap are one.

    The title of the whole figure is left out: a page has it as a heading.

    Example:
        >>> from natgrad.lab.figures import panels
        >>> len(panel_boxes(panels(2)[0]))
        2
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    boxes: list[Box] = []
    for artist in _parts(figure):
        box = artist.get_tightbbox(canvas.get_renderer())
        if box is not None and box.width > 0 and box.height > 0:
            found = (box.x0 / width, 1 - box.y1 / height, box.width / width, box.height / height)
            boxes = _joined(boxes, found)
    return sorted(map(_padded, boxes), key=lambda box: (round(50 * box[1]), box[0]))


def describe_boxes(boxes: Iterable[Box]) -> str:
    """Return boxes as text for a picture's description.

    Example:
        >>> describe_boxes([(0, 0.5, 1, 0.5)])
        'panels: 0.0000 0.5000 1.0000 0.5000'
    """
    return " ".join(["panels:", *(f"{value:.4f}" for box in boxes for value in box)])


def read_boxes(picture: bytes) -> list[Box]:
    """Return the boxes of a picture that has several, else none.

    Example:
        >>> read_boxes(b"panels: 0.0000 0.5000 1.0000 0.5000 0.0000 0.0000 1.0000 0.4000")
        [(0.0, 0.5, 1.0, 0.5), (0.0, 0.0, 1.0, 0.4)]
    """
    found = _MARK.search(picture)
    values = [float(word) for word in found[1].split()] if found else []
    boxes = list(zip(*(values[k::4] for k in range(4)), strict=False))
    return boxes if len(boxes) > 1 else []


def _parts(figure: Any) -> Iterator[Any]:
    """Yield axes, and legends and texts of the figure and of the figures inside it."""
    yield from (axes for axes in figure.axes if axes.get_visible())
    waiting = [figure]
    while waiting:
        inner = waiting.pop()
        waiting += inner.subfigs
        for legend in inner.legends:
            yield from _columns(legend)
        yield from (text for text in inner.texts if text.get_text() != figure.get_suptitle())


def _columns(legend: Any) -> list[Any]:
    """Return the columns of a legend of many: side by side they are too small for a phone."""
    content, _frame = legend.get_children()
    _title, entries = content.get_children()
    columns = list(entries.get_children())
    return columns if len(columns) > 2 else [legend]


def _joined(boxes: list[Box], new: Box) -> list[Box]:
    """Return the boxes with a new one, joined to those that it overlaps by a tenth."""
    apart = []
    for box in boxes:
        left, top = max(box[0], new[0]), max(box[1], new[1])
        right, bottom = (min(box[k] + box[k + 2], new[k] + new[k + 2]) for k in (0, 1))
        common = max(0.0, right - left) * max(0.0, bottom - top)
        if common <= 0.1 * min(box[2] * box[3], new[2] * new[3]):
            apart.append(box)
            continue
        left, top = min(box[0], new[0]), min(box[1], new[1])
        right, bottom = (max(box[k] + box[k + 2], new[k] + new[k + 2]) for k in (0, 1))
        new = (left, top, right - left, bottom - top)
    return [*apart, new]


def _padded(box: Box) -> Box:
    left, top = max(0.0, box[0] - _PAD), max(0.0, box[1] - _PAD)
    right, bottom = (min(1.0, box[k] + box[k + 2] + _PAD) for k in (0, 1))
    return left, top, right - left, bottom - top
