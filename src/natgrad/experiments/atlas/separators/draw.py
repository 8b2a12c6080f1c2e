"""The picture of the atlas: paths of separators that end at certified stars."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.atlas.separators.cells import LIMITS
from natgrad.experiments.atlas.separators.config import Separators
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK

# A color and dashes for each method: no two look alike in gray or to a color-blind eye.
_LOOKS = (
    ("#009E73", "-"), ("#0072B2", "-"), ("#D55E00", "-"), ("#E69F00", "--"), ("#8C6D1F", ":"),
    ("#777777", "-"), ("#CC79A7", "-"), ("#56B4E9", "--"), ("#000000", "-"),
)  # fmt: skip


def draw(config: Separators, arrays: Arrays) -> Figure:
    """Return the map of paths on the left, and shares of the largest margins on the right."""
    figure = Figure(figsize=(11.5, 6.0))
    parts: Any = figure.subfigures(1, 2, width_ratios=[1.5, 1])
    _map(parts[0].subplots(), arrays)
    _shares(parts[1].subplots(), arrays)
    handles, names = parts[0].axes[0].get_legend_handles_labels()
    parts[0].legend(handles, names, loc="outside lower center", ncols=3, fontsize=8.5)
    figure.suptitle("Every optimizer picks its own separator of the same data")
    return figure


def _map(axes: Axes, arrays: Arrays) -> None:
    """Draw directions in the plane that shows the limits of the first data set best."""
    stars = arrays["limits"][0]
    center = stars.mean(0)
    _, _, plane = np.linalg.svd(stars - center)

    def flat(directions: Any) -> Any:
        return np.degrees((directions - center) @ plane[:2].T)

    for name, path, (color, dashes) in zip(
        arrays.coordinates["method"], arrays["path"], _LOOKS, strict=True
    ):
        x, y = flat(path).T
        axes.plot(x, y, color=color, ls=dashes, lw=1.8, label=name)
        axes.plot(x[-1], y[-1], "o", color=color, ms=5)
    for name, (x, y) in zip(LIMITS, flat(stars), strict=True):
        axes.plot(x, y, "*", color="#FFD400", ms=19, markeredgecolor=INK, markeredgewidth=0.9)
        below = name != "vertex"  # paths come from above, but for this one
        axes.annotate(
            name, (x, y), (0, -20 if below else 12), textcoords="offset points", fontsize=9,
            color=INK, ha="center",
        )  # fmt: skip
    axes.margins(0.14)
    axes.set(xlabel="direction of the separator, degrees in the plane of the limits")
    axes.set_ylabel("degrees")
    axes.set_title("Paths of one data set; stars are certified limits", fontsize=10.5)


def _shares(axes: Axes, arrays: Arrays) -> None:
    """Draw the median share of the largest margin that each optimizer has in each norm."""
    last = np.median(arrays["fractions"][:, :, -1], axis=1)
    axes.imshow(np.clip(last, 0, 1), cmap="viridis", vmin=0, vmax=1, aspect="auto")
    for (row, column), share in np.ndenumerate(last):
        paint = "black" if share > 0.6 else "white"
        axes.text(column, row, f"{share:.3f}", ha="center", va="center", color=paint, fontsize=9)
    axes.set_xticks(range(3), arrays.coordinates["norm"])
    axes.set_yticks(range(len(last)), arrays.coordinates["method"])
    axes.tick_params(length=0, labelsize=8.5)
    axes.grid(False)
    axes.set_title("Share of the largest margin (median)", fontsize=10.5)
