"""Singular values of learned matrices at their certified limits, and networks in the plane."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.atlas.matrices.cells import METHODS, NORMS
from natgrad.experiments.atlas.matrices.claims import shares
from natgrad.experiments.atlas.matrices.config import Matrices
from natgrad.experiments.atlas.matrices.networks import OPTIMIZERS
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK

_BLUE, _RED, _GREEN, _PINK = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
_COLORS = dict(zip(METHODS, (_RED, _BLUE, _GREEN, _PINK), strict=True))
_LIMITS = {
    "spectral": "Muon",
    "Frobenius": "normalized gradient",
    "nuclear": "two layers, gradient flow",
}


def draw(config: Matrices, arrays: Arrays) -> Figure:
    """Return singular values and shares above, networks below."""
    figure = Figure(figsize=(12.5, 8.2))
    parts: Any = figure.subfigures(2, 1, height_ratios=[1, 1.05])
    upper, lower = parts
    panels: Any = upper.subplots(1, 2, width_ratios=[1.25, 1])
    _singular_values(panels[0], arrays)
    _table(
        panels[1], np.median(shares(arrays), 1), list(METHODS), list(NORMS),
        "Share of the largest margin (median)", (0.7, 1.0),
    )  # fmt: skip
    nets: Any = lower.subplots(1, 4, width_ratios=[1, 1, 1, 1.1])
    for k, (axes, name) in enumerate(zip(nets, OPTIMIZERS, strict=False)):
        _plane(axes, arrays["plane"][k], arrays["points"], name)
    end = arrays["net_margins"][:, :, -1]
    best = np.where(end.max(0) > 0, end / end.max(0), np.nan)
    norms = ["in ℓ2", "in ℓ∞", "in spectral"]
    _table(
        nets[3], np.nanmedian(best, 1), list(OPTIMIZERS), norms,
        "Margin over the largest", (0.0, 1.0),
    )  # fmt: skip
    figure.suptitle("The optimizer shapes the matrix: equal singular values, or few of them")
    return figure


def _singular_values(axes: Axes, arrays: Arrays) -> None:
    """Draw the singular values of the first data set, each divided by their sum."""
    for name, values in zip(METHODS, arrays["values"][:, 0], strict=True):
        order = np.arange(1, len(values) + 1)
        axes.plot(order, values, "-o", color=_COLORS[name], lw=2, ms=6, label=name)
    for name, values in zip(NORMS, arrays["limit_values"][0], strict=True):
        order = np.arange(1, len(values) + 1)
        axes.plot(
            order, values, "*", color=_COLORS[_LIMITS[name]], ms=17, mec=INK, mew=0.9, zorder=3,
            alpha=0.85,
        )  # fmt: skip
    axes.plot([], [], "*", color="white", mec=INK, ms=13, ls="none", label="certified limit")
    axes.set_xticks(order)
    axes.set(xlabel="singular value", ylabel="share of their sum", ylim=(-0.02, None))
    axes.set_title("Singular values of the separator, one data set", fontsize=10.5)
    axes.legend(fontsize=8.5)


def _table(
    axes: Axes, values: Any, rows: list[str], columns: list[str], title: str,
    span: tuple[float, float],
) -> None:  # fmt: skip
    """Draw numbers on colors; the largest of each row is bold."""
    axes.imshow(values, cmap="Blues", vmin=span[0], vmax=span[1] + 0.25, aspect="auto")
    for (i, j), value in np.ndenumerate(values):
        weight = "bold" if value == np.nanmax(values[i]) else "normal"
        dark = value - span[0] > 0.6 * (span[1] + 0.25 - span[0])
        axes.text(
            j, i, f"{value:.3f}", ha="center", va="center", fontsize=10, fontweight=weight,
            color="white" if dark else INK,
        )  # fmt: skip
    axes.set_xticks(range(len(columns)), columns, fontsize=9)
    axes.set_yticks(range(len(rows)), [row.replace(", ", ",\n") for row in rows], fontsize=8.5)
    axes.tick_params(length=0)
    axes.grid(False)
    axes.set_title(title, fontsize=10.5)


def _plane(axes: Axes, outputs: Any, points: Any, name: str) -> None:
    """Draw the output of one network, its boundary and its samples."""
    size = np.abs(outputs).max()
    box = (-1.05, 1.05, -1.05, 1.05)
    axes.imshow(outputs / size, extent=box, origin="lower", cmap="RdBu", vmin=-1, vmax=1)
    axes.contour(outputs, [0.0], extent=box, colors=INK, linewidths=1.4)
    for label, color in ((1, _BLUE), (-1, _RED)):
        chosen = points[points[:, 2] == label]
        axes.plot(*chosen[:, :2].T, "o", color=color, mec="white", ms=6, ls="none")
    axes.set(xticks=(), yticks=())
    axes.grid(False)
    axes.set_title(f"ReLU network: {name}", fontsize=10.5)
