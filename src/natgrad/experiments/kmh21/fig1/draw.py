"""The picture of Figure 1."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.kmh21.fig1.cells import INPUT, START, TARGET
from natgrad.experiments.kmh21.fig1.config import Fig1
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, look

_GREEN = "#009E73"
_EGD = (look("EGD L=2")["color"], look("EGD L=4")["color"])
_NGD = look("NGD")["color"]

Map = Callable[[Any], Any]


def draw(config: Fig1, arrays: Arrays) -> Figure:
    """Return both parameter spaces and, between them, the hypothesis space."""
    figure = Figure(figsize=(10.5, 4.1))
    left, middle, right = figure.subplots(1, 3)
    params, beta = arrays["params"], arrays["beta"]
    _frame(left, "$\\mathcal{W}_1$: direct, β = w", "w", lambda w: w)
    _frame(middle, "$\\mathcal{H}$: EGD parts, NGD meets", "β", lambda b: b)
    _frame(right, "$\\mathcal{W}_2$: diagonal, β = w ⊙ w", "w", np.square)
    right.set(xlim=(0, 1.6), ylim=(0, 2.0))
    for axes, paths, color in ((left, params[0], _EGD[0]), (right, params[1], _EGD[1])):
        _path(axes, paths[0], "EGD", color)
        _path(axes, paths[1], "NGD", _NGD)
        _start(axes, paths[0, 0])
    _path(middle, beta[0, 0], "EGD in $\\mathcal{W}_1$", _EGD[0])
    _path(middle, beta[1, 0], "EGD in $\\mathcal{W}_2$", _EGD[1])
    _path(middle, beta[0, 1], "NGD in\n$\\mathcal{W}_1$ and $\\mathcal{W}_2$", _NGD, thick=True)
    middle.plot(*beta[1, 1].T, color="white", linewidth=1.2, linestyle=(0, (4, 3)))
    _start(middle, np.array(START))
    left.annotate(
        "optima: zero loss", (0.62, 2.76), rotation=-63, rotation_mode="anchor", color=_GREEN,
        xytext=(6, 0), textcoords="offset points",
    )  # fmt: skip
    figure.suptitle(
        "One hypothesis space, two parametrizations: only NGD does not depend on the choice"
    )
    return figure


def _frame(axes: Axes, title: str, letter: str, image: Map) -> None:
    """Prepare a space: levels of the loss, and its optima; `image` maps parameters to β."""
    grid = np.linspace(0, 3.2, 321)
    points = np.stack(np.meshgrid(grid, grid), axis=-1)
    residual = image(points) @ np.array(INPUT) - TARGET
    levels = np.arange(0.25, 4.0, 0.25)
    axes.contour(grid, grid, np.abs(residual), levels=levels, colors="#DDDDDD", linewidths=0.8)
    axes.contour(grid, grid, residual, levels=[0.0], colors=_GREEN, linewidths=2.2)
    axes.set_title(title, fontsize=11)
    axes.set(xlim=(0, 2.4), ylim=(0, 3.0), aspect="equal")
    axes.set(xlabel=f"{letter}₁", ylabel=f"{letter}₂")
    axes.grid(visible=False)


def _path(axes: Axes, points: Any, text: str, color: str, *, thick: bool = False) -> None:
    axes.plot(*points.T, color=color, linewidth=4.5 if thick else 2.4)
    axes.plot(*points[-1], marker="o", markersize=7, color=color, zorder=5)
    axes.annotate(
        text, points[-1], xytext=(8, 4), textcoords="offset points", color=color,
        fontweight="bold", fontsize=9.5,
    )  # fmt: skip


def _start(axes: Axes, point: Any) -> None:
    axes.plot(*point, marker="o", markersize=7, color="white", markeredgecolor=INK, zorder=6)
    axes.annotate("start", point, xytext=(4, -13), textcoords="offset points", ha="center")
