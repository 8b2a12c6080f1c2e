"""The picture of the atlas: paths of separators that end at certified stars."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.atlas.separators.cells import LIMITS
from natgrad.experiments.atlas.separators.config import Separators
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK

_COLORS = (
    "#009E73", "#0072B2", "#D55E00", "#E69F00", "#F0C75E", "#999999", "#CC79A7", "#56B4E9",
    "#000000",
)  # fmt: skip


def draw(config: Separators, arrays: Arrays) -> Figure:
    """Return the map of paths on the left, and shares of the largest margins on the right."""
    figure = Figure(figsize=(11.5, 5.6))
    left, right = figure.subplots(1, 2, width_ratios=[1.35, 1])
    _map(left, arrays)
    _shares(right, arrays)
    figure.suptitle("Every optimizer picks its own separator of the same data")
    return figure


def _map(axes: Axes, arrays: Arrays) -> None:
    """Draw directions in the plane that shows the limits of the first data set best."""
    stars = arrays["limits"][0]
    center = stars.mean(0)
    _, _, plane = np.linalg.svd(stars - center)

    def flat(directions: Any) -> Any:
        return np.degrees((directions - center) @ plane[:2].T)

    for name, path, color in zip(
        arrays.coordinates["method"], arrays["path"], _COLORS, strict=True
    ):
        x, y = flat(path).T
        axes.plot(x, y, color=color, lw=1.6, alpha=0.85, label=name)
        axes.plot(x[-1], y[-1], "o", color=color, ms=5)
    for name, (x, y) in zip(LIMITS, flat(stars), strict=True):
        axes.plot(x, y, "*", color="#FFD400", ms=19, markeredgecolor=INK, markeredgewidth=0.9)
        axes.annotate(name, (x, y), (9, 7), textcoords="offset points", fontsize=9, color=INK)
    axes.set_aspect("equal")
    axes.set(xlabel="degrees on the sphere, projected", ylabel="degrees")
    axes.set_title("Paths of one data set; stars are certified limits", fontsize=11)
    axes.legend(fontsize=8, loc="best")


def _shares(axes: Axes, arrays: Arrays) -> None:
    """Draw the median share of the largest margin that each optimizer has in each norm."""
    last = np.median(arrays["fractions"][:, :, -1], axis=1)
    shown = axes.imshow(np.clip(last, 0, 1), cmap="viridis", vmin=0, vmax=1, aspect="auto")
    for (row, column), share in np.ndenumerate(last):
        paint = "black" if share > 0.6 else "white"
        axes.text(column, row, f"{share:.3f}", ha="center", va="center", color=paint, fontsize=9)
    axes.set_xticks(range(3), arrays.coordinates["norm"])
    axes.set_yticks(range(len(last)), arrays.coordinates["method"])
    axes.set_title("Share of the largest margin in each norm (median)", fontsize=11)
    axes.figure.colorbar(shown, ax=axes, shrink=0.8)
