"""The figure of the race: ratios of seconds to the target, and curves."""

from typing import TYPE_CHECKING, Any

import numpy as np

from natgrad.experiments.race import config as field
from natgrad.experiments.race.claims import against
from natgrad.lab import figures
from natgrad.lab.arrays import Arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GREY = "#8A8A8A"
_LOOKS: dict[str, dict[str, Any]] = {
    "SGD": {"color": "#4A9FD0", "marker": "o"},
    "AdamW": {"color": "#1C4788", "marker": "D"},
    "Muon": {"color": "#009E73", "marker": "^"},
    "SOAP": {"color": "#CC79A7", "marker": "v"},
    "Shampoo": {"color": "#8C5A82", "marker": "<"},
    field.KFAC: {"color": "#000000", "marker": "*"},
    field.PUBLISHED: {"color": "#E69F00", "marker": "X"},
    field.DEFAULT: {"color": "#D55E00", "marker": "P"},
    field.TUNED: {"color": "#D55E00", "marker": "P", "linestyle": (0, (2, 1.5))},
}
_COLUMNS = 5


def picture(arrays: Arrays) -> "Figure":
    """Return the figure: a column for each problem, ratios above, curves below, five in a row."""
    problems = arrays.coordinates["problem"]
    columns = min(_COLUMNS, len(problems))
    with figures.style():
        lines = -(-len(problems) // columns)
        figure, axes = figures.panels(columns, 2 * lines, width=3.1, height=2.8)
        for k, problem in enumerate(problems):
            line, column = divmod(k, columns)
            top = 2 * line * columns + column
            _ratios(axes[top], arrays, problem, labels=column == 0)
            _curves(axes[top + columns], arrays, k, labels=column == 0)
        for k in range(len(problems), lines * columns):
            line, column = divmod(k, columns)
            for at in (2 * line * columns + column, (2 * line + 1) * columns + column):
                axes[at].set_visible(False)
        entrants = arrays.coordinates["entrant"]
        for who, raced in zip(entrants, np.atleast_1d(arrays["raced"].any(axis=0)), strict=True):
            if raced:  # in one order, whoever raced in the first panel
                axes[0].plot([], [], label=who, markersize=3.2, linewidth=1.2, **_LOOKS[who])
        narrow = columns < 3
        figures.legend(figure, columns=2 * columns if narrow else 5)
        figure.suptitle("The race" if narrow else "Seconds to the target, with equal tuning")
    return figure


def _ratios(axes: "Axes", arrays: Arrays, problem: str, *, labels: bool) -> None:
    """Draw the ratio of each entrant: its mean and range over seeds, an arrow for a bound."""
    from matplotlib.ticker import LogLocator

    names = [who for who in arrays.coordinates["entrant"] if who != field.DEFAULT]
    axes.axvline(1.0, color=_LOOKS[field.DEFAULT]["color"], linewidth=1.2)
    axes.set_xscale("log", subs=[])
    axes.xaxis.set_major_formatter("{x:g}")
    for row, who in enumerate(names):
        measured = against(arrays, problem, who)
        look = _LOOKS[who]
        if measured is None or np.isnan(measured.value):
            text = "did not race" if measured is None else "neither reached it"
            axes.text(1.03, row, text, va="center", fontsize=7, color=_GREY)
            continue
        low, high = measured.value - measured.low, measured.high - measured.value
        axes.errorbar(
            measured.value,
            row,
            xerr=[[max(low, 0.0)], [max(high, 0.0)]],
            color=look["color"],
            marker=look["marker"],
            linestyle="none",
            capsize=2.5,
            markerfacecolor="white" if measured.bound else look["color"],
        )
        if measured.bound:
            arrow = {">": "→", "<": "←", "?": "?"}[measured.bound]
            axes.annotate(
                arrow,
                (max(measured.high, measured.value), row),
                xytext=(5, 0),
                textcoords="offset points",
                va="center",
                color=look["color"],
            )
    axes.set_yticks(range(len(names)), names if labels else [""] * len(names))
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.margins(x=0.2)
    low, high = axes.get_xlim()
    wide = high > 100 * low  # there is room only for the labels of decades
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0)))
    axes.set_xlabel("seconds to the target / NGD's")
    axes.set_title(problem)


def _curves(axes: "Axes", arrays: Arrays, p: int, *, labels: bool) -> None:
    """Draw the validation score against seconds, the median over seeds."""
    budget = float(arrays["budget"][p])
    grid = np.linspace(0, budget, 200)
    lowest, first = np.inf, 0.0
    for e, who in enumerate(arrays.coordinates["entrant"]):
        if not arrays["raced"][p, e]:
            continue
        lines = np.stack(
            [
                _on_grid(grid, seconds, score)
                for seconds, score in zip(
                    arrays["seconds"][p, e], arrays["score"][p, e], strict=True
                )
            ]
        )
        middle = np.median(lines, axis=0)
        look = {"markevery": 40, "linewidth": 1.2, "markersize": 3.2} | _LOOKS[who]
        axes.plot(grid, middle, **look)
        good = middle[np.isfinite(middle)]
        lowest, first = min(lowest, good.min()), max(first, good[0])
    target = float(arrays["target"][p])
    axes.axhline(target, color=_GREY, linestyle=(0, (4, 2)), linewidth=0.9)
    axes.annotate(
        f"target {target:.3g}",
        (0, target),  # at the left, where the curves are far above
        xytext=(0, 2),
        textcoords="offset points",
        fontsize=7,
        color=_GREY,
    )
    axes.set_yscale("log")
    axes.set_ylim(0.95 * min(lowest, target), 1.1 * first)
    axes.set_xlabel("seconds")
    if labels:
        axes.set_ylabel("score on validation data")


def _on_grid(grid: Any, seconds: Any, score: Any) -> Any:
    """Return a curve at common times; infinite after the run diverged."""
    seen = np.isfinite(seconds)
    seconds, score = seconds[seen], score[seen]
    fine = np.isfinite(score)
    line = np.interp(grid, seconds[fine], score[fine])
    if not fine.all():
        line[grid > seconds[fine].max()] = np.inf
    return line
