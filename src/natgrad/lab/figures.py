"""The common style of all figures: readable in print and for color-blind readers, reproducible.

matplotlib and numpy are imported where they are used. pyplot is not imported, because it keeps
windows and a global list of figures.
"""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from natgrad.errors import InvalidInputError, ShapeError
from natgrad.lab._boxes import describe_boxes, panel_boxes
from natgrad.lab._store.atomic import write_bytes

if TYPE_CHECKING:
    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

__all__ = [
    "INK",
    "METHODS",
    "PALETTE",
    "band",
    "label_ticks",
    "legend",
    "look",
    "panels",
    "render",
    "save",
    "style",
]

INK = "#222222"
"""Axes and text."""

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Colors for series other than `METHODS`: those of Okabe and Ito, without the yellow."""

# Depths are ordered, so their colors go from light to dark, also in grayscale. Natural gradients #
# have warm colors. Limits, which do not move, are gray and dashed.
_LOOKS: dict[str, tuple[str, str, Any]] = {
    "EGD L=1": ("#8CC6DE", "o", "-"),
    "EGD L=2": ("#4A9FD0", "s", "-"),
    "EGD L=3": ("#2072B2", "^", "-"),
    "EGD L=4": ("#1C4788", "D", "-"),
    "EGD L=5": ("#0B1F47", "v", "-"),
    "NGD": ("#D55E00", "P", "-"),
    "NGD population": ("#E69F00", "X", (0, (5, 1.5))),
    "SGD": ("#2072B2", "o", "-"),
    "ℓ2 max margin": ("#6B6B6B", "", (0, (1, 1.5))),
    "ℓ1 max margin": ("#6B6B6B", "", (0, (6, 2))),
    "min nuclear norm": ("#6B6B6B", "", (0, (6, 2, 1, 2))),
    "truth": ("#000000", "", "-"),
}
METHODS = tuple(_LOOKS)
"""The methods that have the same look in every figure."""

_RC: dict[str, Any] = {
    "font.size": 8.5,
    "font.family": "DejaVu Sans",  # matplotlib includes it: same letters on every machine
    "mathtext.fontset": "dejavusans",
    "text.color": INK,
    "figure.dpi": 100,
    "figure.titlesize": 10.5,
    "figure.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.06,
    "figure.constrained_layout.w_pad": 0.06,
    "figure.constrained_layout.wspace": 0.04,
    "axes.titlesize": 9.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 7.0,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.2,
    "lines.markeredgewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "xtick.minor.width": 0.5,
    "ytick.minor.width": 0.5,
    "xtick.minor.size": 1.6,
    "ytick.minor.size": 1.6,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "legend.borderaxespad": 0.3,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",  # no font is needed to read it
    "svg.hashsalt": "natgrad",  # without it, names of parts are random
    "pdf.fonttype": 42,  # TrueType: publishers refuse the default
}


@contextmanager
def style() -> Iterator[None]:
    """Draw in the common style while the block runs, whatever your matplotlib settings are.

    Example:
        >>> with style():
        ...     figure, (left, right) = panels(2)
        ...     line = band(left, [1, 2], [[0.6, 0.8], [0.7, 0.9]], **look("NGD"))
        >>> sorted(render(figure))
        ['figure.pdf', 'figure.png', 'figure.svg']
    """
    import matplotlib
    from matplotlib.style import context

    with context([_RC], after_reset=True):
        from cycler import cycler

        matplotlib.rcParams["axes.prop_cycle"] = cycler(color=PALETTE)
        yield


def look(method: str) -> dict[str, Any]:
    """Return color, marker and dashes of a method, the same in every figure.

    Raises:
        InvalidInputError: If the method is none of `METHODS`.

    Example:
        >>> look("NGD")
        {'color': '#D55E00', 'marker': 'P', 'linestyle': '-'}
    """
    if method not in _LOOKS:
        raise InvalidInputError(
            f"there is no look for {method!r}; there is for {', '.join(METHODS)}. "
            "For other series take colors from PALETTE."
        )
    color, marker, dashes = _LOOKS[method]
    return {"color": color, "marker": marker, "linestyle": dashes}


def panels(
    columns: int = 1, rows: int = 1, *, width: float = 3.3, height: float = 2.7, **options: Any
) -> "tuple[Figure, npt.NDArray[Any]]":
    """Return a figure and its axes in one flat array, left to right, then down.

    Args:
        columns: Panels beside each other.
        rows: Panels below each other.
        width: Inches of one panel.
        height: Inches of one panel.
        options: For `Figure.subplots`, such as `sharey=True`.

    Example:
        >>> figure, axes = panels(2, 3)
        >>> axes.shape
        (6,)
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width, rows * height))
    return figure, figure.subplots(rows, columns, squeeze=False, **options).ravel()


def band(
    axes: "Axes",
    x: "npt.ArrayLike",
    values: "npt.ArrayLike",
    *,
    center: Literal["mean", "median"] = "mean",
    **options: Any,
) -> "Line2D":
    """Draw a line through the center of all seeds, and their spread behind it.

    The spread is one standard deviation on each side of a mean. Around a median, the choice for
    logarithmic axes, it is the quartiles. One seed has no spread. A NaN leaves a gap: no seed is
    dropped silently.

    Args:
        axes: Where to draw.
        x: Positions, of shape `(points,)`.
        values: One row per seed, of shape `(seeds, points)`.
        center: What the line shows. The old spelling `centre` warns until version 0.3.
        options: For `Axes.plot`, such as `label="NGD"` or `**look("NGD")`.

    Example:
        >>> figure, (axes,) = panels()
        >>> line = band(axes, [1, 2], [[0.6, 0.8], [0.8, 1.0]], label="two seeds")
        >>> line.get_ydata()
        array([0.7, 0.9])
    """
    import numpy as np

    if "centre" in options:
        warnings.warn(
            "band takes center; version 0.3 removes the old spelling centre.",
            DeprecationWarning,
            stacklevel=2,
        )
        center = options.pop("centre")
    x, values = np.asarray(x), np.asarray(values, dtype=np.float64)
    if values.ndim != 2 or len(values) == 0 or values.shape[1:] != x.shape:
        raise ShapeError(
            f"band takes values of shape (seeds, points) and x of shape (points,), but got "
            f"{values.shape} and {x.shape}."
        )
    if center == "mean":
        middle = values.mean(axis=0)
        spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.zeros_like(middle)
        low, high = middle - spread, middle + spread
    else:
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
    (line,) = axes.plot(x, middle, **options)
    if len(values) > 1:
        axes.fill_between(x, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    return line


def label_ticks(axis: "Axis", values: Sequence[float]) -> None:
    """Label only these values, in plain digits: for sizes along a logarithmic axis.

    Example:
        >>> figure, (axes,) = panels()
        >>> label_ticks(axes.xaxis, [250, 500])
        >>> [label.get_text() for label in axes.get_xticklabels()]
        ['250', '500']
    """
    axis.set_ticks(values, [f"{value:g}" for value in values])
    axis.set_ticks([], minor=True)


def legend(figure: "Figure", columns: int = 4) -> None:
    """Put one legend below all panels, where it covers no data; each label appears once.

    Example:
        >>> with style():
        ...     figure, (left, right) = panels(2)
        ...     lines = [axes.plot([1, 2], label="NGD") for axes in (left, right)]
        ...     legend(figure)
        >>> [text.get_text() for text in figure.legends[0].get_texts()]
        ['NGD']
    """
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(
        found.values(), found.keys(), loc="outside lower center", ncols=min(columns, len(found))
    )


def render(figure: "Figure") -> dict[str, bytes]:
    """Return the picture as PNG (200 dots per inch), PDF and SVG, by file name.

    It holds no date and no random name: the same figure gives the same bytes. The SVG says where
    its panels are, so that a report can show them one below the other on a phone.

    Example:
        >>> figure, (axes,) = panels()
        >>> render(figure)["figure.png"][1:4]
        b'PNG'
    """
    files = {}

    def save(kind: str, **metadata: Any) -> None:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
        files[f"figure.{kind}"] = buffer.getvalue()

    with style():
        # The PNG decides the layout: text is widest there, where its pixels are rounded. The other
        # formats would compute a layout again.
        save("png")
        layout = figure.get_layout_engine()
        figure.set_layout_engine("none")
        save("pdf", CreationDate=None)
        save("svg", Date=None, Description=describe_boxes(panel_boxes(figure)))
        figure.set_layout_engine(layout)
    files["figure.svg"] = _compact(files["figure.svg"])
    return files


def _compact(svg: bytes) -> bytes:
    """Return an SVG with coordinates to a hundredth of a point and without indentation."""
    svg = re.sub(
        rb'\b(d|x|y)="[^"]*"', lambda found: re.sub(rb"(\.\d\d)\d+", rb"\1", found[0]), svg
    )
    return re.sub(rb"\n +", b"\n", svg)


def save(figure: "Figure", folder: Path) -> tuple[Path, ...]:
    """Write `figure.png`, `figure.pdf` and `figure.svg`, each completely or not at all.

    Raises:
        StoreError: If the folder cannot be written.

    Example:
        >>> import tempfile
        >>> figure, (axes,) = panels()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [path.name for path in save(figure, Path(folder))]
        ['figure.png', 'figure.pdf', 'figure.svg']
    """
    files = render(figure)
    for name, data in files.items():
        write_bytes(folder / name, data)
    return tuple(folder / name for name in files)
