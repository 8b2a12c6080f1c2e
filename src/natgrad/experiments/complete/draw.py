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
    """Draw the best scale of each depth, with the others faint behind it."""
    curves, errors = arrays["validation_curve"], arrays["validation_error"]
    for i, depth in enumerate(arrays.coordinates["depth"]):
        color = look(f"EGD L={depth}")["color"] if depth <= 5 else INK
        best = int(errors[i].argmin())
        for j, scale in enumerate(arrays.coordinates["scale"]):
            times, along = curves[i, j]
            if j == best:
                label = f"L = {depth}, best from α = {scale:g}"
                axes.plot(times, along, color=color, linewidth=1.8, label=label, zorder=3)
            else:
                axes.plot(times, along, color=color, linewidth=0.7, alpha=0.35)
    axes.set_xscale("log")
    axes.set_xlabel("time t")
    axes.set_ylabel("root mean squared error")
    axes.set_title("Held-out entries along the flow")
    low, high = np.nanmin(curves[:, :, 1]), np.nanmax(curves[:, :, 1])
    if high > 5 * low:  # far above the end, where the choice is made
        axes.set_yscale("log")
        axes.set_ylim(low / 1.2, high * (high / low) ** 0.3)
    else:
        axes.set_ylim(low - 0.05 * (high - low), high + 0.35 * (high - low))
    axes.legend(loc="upper right", fontsize=7.5)


def _values(axes: Axes, arrays: Arrays) -> None:
    values = arrays["singular_values"]
    kept = values > 1e-6 * values[0]
    axes.plot(np.arange(1, len(values) + 1)[kept], values[kept], color=INK, marker="o")
    axes.set_yscale("log")
    axes.set_xlabel("index")
    axes.set_ylabel("singular value")
    axes.set_title(f"Effective rank {float(arrays['effective_rank']):.3g}")
