"""The picture of Figure 2."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.kmh21.fig2.config import Fig2
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, look

_CLASSES = {1.0: ("#CC79A7", "o"), -1.0: ("#009E73", "s")}


def draw(config: Fig2, arrays: Arrays) -> Figure:
    """Return four panels of separators, as in the paper, and the angles against time below."""
    figure = Figure(figsize=(11.0, 6.2))
    rows: Any = figure.subfigures(2, 1, height_ratios=[0.95, 1.1])
    top, bottom = rows
    depths = arrays.coordinates["depth"]
    for axes, (method, depth) in zip(
        top.subplots(1, 4, sharex=True, sharey=True),
        [("EGD", 1), ("EGD", 4), ("NGD", 1), ("NGD", 4)],
        strict=True,
    ):
        _separators(axes, arrays, method, depths.index(depth))
    left, right = bottom.subplots(1, 2, sharey=True)
    _euclidean(left, arrays)
    _natural(right, arrays)
    figure.suptitle("Depth turns EGD's separator toward the axis; NGD's is the same at every depth")
    return figure


def _separators(axes: Axes, arrays: Arrays, method: str, index: int) -> None:
    """Draw the data, separators along the path (fainter when earlier) and the last one."""
    x, y = arrays["x"], arrays["y"]
    depth = arrays.coordinates["depth"][index]
    angles = arrays[f"{method.lower()}_angle"][index]
    color = look(f"EGD L={depth}" if method == "EGD" else "NGD")["color"]
    for shade, at in zip((0.18, 0.35, 0.55), (0.12, 0.3, 0.5), strict=True):
        _line(axes, angles[int(at * len(angles))], color=color, alpha=shade, linewidth=1.4)
    _line(axes, angles[-1], color=color, linewidth=2.6)
    for label, (paint, marker) in _CLASSES.items():
        first, second = x[y == label].T
        axes.scatter(first, second, c=paint, marker=marker, s=16, linewidths=0)
    first, second = x[:3].T
    axes.scatter(first, second, facecolors="none", edgecolors=INK, s=60, linewidths=0.9)
    axes.set(xlim=(-4.8, 4.8), ylim=(-4, 4), aspect="equal", xticks=[-4, 0, 4], yticks=[-3, 0, 3])
    axes.set_title(f"{method}, L = {depth}: {abs(angles[-1]):.1f}°", fontsize=11)


def _line(axes: Axes, angle: float, **options: Any) -> None:
    """Draw the line whose normal has this angle to the first axis, in degrees."""
    turn = np.radians(angle)
    along = np.array([-np.sin(turn), np.cos(turn)]) * 9
    axes.plot([-along[0], along[0]], [-along[1], along[1]], **options)


def _euclidean(axes: Axes, arrays: Arrays) -> None:
    times, limits = arrays.coordinates["euclidean_time"], arrays["norm_limit_angle"]
    for index, depth in enumerate(arrays.coordinates["depth"]):
        shape = look(f"EGD L={depth}") | {"marker": ""}
        axes.semilogx(times, arrays["egd_angle"][index], label=f"L = {depth}", **shape, lw=2.2)
        if depth in (1, 2, 4):
            name = {1: "ℓ2", 2: "ℓ1", 4: "ℓ½"}[depth]
            _limit(axes, float(limits[index]), f"{name} max margin", shape["color"])
    axes.legend(title="EGD", loc="upper left", ncols=2)
    axes.set(xlabel="time t", ylabel="angle of the separator to the axis, °", ylim=(-2, 46))
    axes.set_title("EGD: a different limit at each depth, approached slowly")


def _natural(axes: Axes, arrays: Arrays) -> None:
    times = arrays.coordinates["natural_time"]
    depths = arrays.coordinates["depth"]
    dashes = ["-", (0, (6, 4)), (0, (3, 4)), (0, (1, 3))]
    shades = ["#F3B27A", "#D55E00", "#8C3B00", "#000000"]
    for index, depth in enumerate(depths):
        width = 6 - 1.4 * index
        axes.semilogx(
            times,
            arrays["ngd_angle"][index],
            color=shades[index % 4],
            linestyle=dashes[index % 4],
            linewidth=width,
            label=f"L = {depth}",
        )
    _limit(axes, float(arrays["vertex_angle"]), "vertex of min c·b, X̃b ≥ 1", "#D55E00")
    axes.legend(title="NGD", loc="lower right", ncols=2)
    axes.set(xlabel="time t")
    axes.set_title("NGD: the same path at all depths, to a vertex of a linear program")


def _limit(axes: Axes, angle: float, text: str, color: str) -> None:
    axes.axhline(angle, color=color, linestyle=(0, (2, 2)), linewidth=1.1)
    axes.annotate(
        text, (1.0, angle), xycoords=("axes fraction", "data"), xytext=(-2, 5),
        textcoords="offset points", ha="right", color=color, fontsize=8,
    )  # fmt: skip
