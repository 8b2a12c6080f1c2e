"""The picture of the study: bias kept against its price, and every problem in a table."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from natgrad.experiments.study.generalization import summary
from natgrad.experiments.study.generalization.config import Generalization
from natgrad.experiments.study.generalization.methods import DAMPINGS, damped
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK

_PATH = ("exact NGD", *(damped(damping) for damping in DAMPINGS), "EGD")
_FAMILIES = {"classes": "#0072B2", "matrix": "#D55E00", "teacher": "#009E73", "table": "#CC79A7"}
_OTHERS = {"Adam": "s", "Muon": "^", "K-FAC": "D", "NGD": "*"}
_SPAN = 3.0  # of the colors, in log error


def draw(config: Generalization, arrays: Arrays) -> Figure:
    """Return what damping keeps on the left, and errors relative to EGD's on the right."""
    figure = Figure(figsize=(13.0, 7.2))
    parts: Any = figure.subfigures(1, 2, width_ratios=[1, 1.35])
    _kept(parts[0].subplots(), arrays)
    _table(parts[1].subplots(), arrays)
    figure.suptitle("Which optimizers keep the bias of gradient descent, and in how many steps")
    return figure


def _kept(axes: Axes, arrays: Arrays) -> None:
    """Draw, for each problem where EGD wins, the path from exact NGD to EGD."""
    names, seen = arrays.coordinates["problem"], set()
    for i in summary.decided(arrays):
        family = names[i].split(",")[0]
        color = _FAMILIES[family]
        x = [summary.price(arrays, i, m).value for m in _PATH]
        shares = [summary.kept(arrays, i, m) for m in _PATH]
        y = [share.value for share in shares]
        label = None if family in seen else f"{family}: λ from 0 to ∞"
        seen.add(family)
        axes.plot(x, y, "-", color=color, lw=1.2, alpha=0.75, marker=".", label=label)
        axes.vlines(x, [s.low for s in shares], [s.high for s in shares], color=color, alpha=0.35)
        for method, marker in _OTHERS.items():
            share = summary.kept(arrays, i, method).value
            if np.isfinite(share):
                axes.plot(
                    summary.price(arrays, i, method).value, share, marker, color=color, ms=7,
                    markeredgecolor=INK, markeredgewidth=0.5,
                )  # fmt: skip
    for method, marker in _OTHERS.items():
        axes.plot([], [], marker, color="#BBBBBB", markeredgecolor=INK, ls="none", label=method)
    axes.axhline(1, color=INK, lw=0.8, ls="--")
    axes.axhline(0, color=INK, lw=0.8, ls=":")
    axes.set(xscale="log", ylim=(-1.2, 1.6))
    axes.set(xlabel="steps relative to EGD's", ylabel="share of EGD's advantage kept")
    axes.set_title("Problems where EGD beats exact NGD", fontsize=10.5)
    axes.legend(fontsize=8, loc="center right")


def _table(axes: Axes, arrays: Arrays) -> None:
    """Draw the ratio of every error to EGD's; bold where the interval excludes one."""
    problems, methods = (arrays.coordinates[name] for name in ("problem", "method"))
    shown = [m for m in methods if m != "EGD"]
    found = [[summary.advantage(arrays, i, m) for m in shown] for i in range(len(problems))]
    values = np.array([[cell.value for cell in row] for row in found])
    axes.imshow(
        np.ma.masked_invalid(values), cmap="RdBu_r", aspect="auto",
        norm=TwoSlopeNorm(0, -_SPAN, _SPAN),
    )  # fmt: skip
    for (row, column), value in np.ndenumerate(values):
        cell = found[row][column]
        if summary.absent(arrays, row, shown[column]):
            axes.text(column, row, "–", ha="center", va="center", color="#888888", fontsize=8)
            continue
        few = summary.arrivals(arrays, row, shown[column]) < len(arrays.coordinates["seed"])
        sure = cell.low > 0 or cell.high < 0
        ratio = np.exp(value)
        told = f"{ratio:.0f}" if ratio >= 100 else f"{ratio:.2g}"
        axes.text(
            column, row, told + "*" * few if np.isfinite(value) else "none",
            ha="center", va="center", fontsize=8,
            color="white" if abs(value) > 0.7 * _SPAN else INK,
            fontweight="bold" if sure else "normal",
        )  # fmt: skip
    labels = [m.replace("damped NGD, ", "") for m in shown]
    axes.set_xticks(range(len(shown)), labels, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(problems)), problems)
    axes.tick_params(length=0, labelsize=8)
    axes.grid(False)
    axes.set_title(
        "Error on fresh data relative to EGD's. Bold: beyond chance.\n"
        "*: not every run reached the training loss. –: does not apply.",
        fontsize=10.5,
        loc="right",
    )
