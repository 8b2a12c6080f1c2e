"""The picture of a completed matrix."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, look, panels

_BARS = ("#2072B2", "#6B6B6B", "#009E73", "#CC79A7", "#BBBBBB")


def picture(arrays: Arrays) -> Figure:
    """Return test errors, errors on held-out entries along the flows, and singular values."""
    figure, (left, middle, right) = panels(3, width=3.7, height=3.0)
    _errors(left, arrays)
    _curves(middle, arrays)
    _values(right, arrays)
    depth, scale = int(arrays["chosen_depth"]), float(arrays["chosen_scale"])
    figure.suptitle(f"Chosen on held-out entries: depth {depth}, initial scale {scale:g}")
    return figure


def _errors(axes: Axes, arrays: Arrays) -> None:
    names, errors = arrays.coordinates["method"], arrays["test_error"]
    where = np.arange(len(names))[::-1]
    axes.barh(where, errors, color=_BARS, height=0.62)
    axes.set_yticks(where, names)
    axes.grid(axis="y", visible=False)
    for y, error in zip(where, errors, strict=True):
        axes.text(error, y, f" {error:.3g}", va="center", fontsize=8, color=INK)
    axes.set_xlim(0, 1.2 * float(errors.max()))
    axes.set_xlabel("root mean squared error")
    axes.set_title("Error on test entries")


def _curves(axes: Axes, arrays: Arrays) -> None:
    curves = arrays["validation_curve"]
    chosen = (int(arrays["chosen_depth"]), float(arrays["chosen_scale"]))
    dashes = ["-", (0, (4, 1.5)), (0, (1, 1.2)), (0, (5, 1, 1, 1)), (0, (2, 2))]
    for i, depth in enumerate(arrays.coordinates["depth"]):
        for j, scale in enumerate(arrays.coordinates["scale"]):
            times, errors = curves[i, j]
            style = look(f"EGD L={depth}") if depth <= 5 else {"color": INK}
            width = 2.4 if (depth, scale) == chosen else 1.0
            axes.plot(
                times,
                errors,
                color=style["color"],
                linestyle=dashes[j % 5],
                linewidth=width,
                label=f"L={depth}, α={scale:g}",
            )
    axes.set_xscale("log")
    axes.set_xlabel("time t")
    axes.set_ylabel("error")
    axes.set_title("Held-out entries along the flow")
    axes.legend(fontsize=6.5, loc="lower left")


def _values(axes: Axes, arrays: Arrays) -> None:
    values = arrays["singular_values"]
    kept = values > 1e-6 * values[0]
    axes.plot(np.arange(1, len(values) + 1)[kept], values[kept], color=INK, marker="o")
    axes.set_yscale("log")
    axes.set_xlabel("index")
    axes.set_ylabel("singular value")
    axes.set_title(f"Effective rank {float(arrays['effective_rank']):.3g}")
