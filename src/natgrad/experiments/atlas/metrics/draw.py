"""Angles to the limits of each metric, the frozen rotation, and the switch at κ = 1."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from natgrad.experiments.atlas.metrics.config import Metrics
from natgrad.lab.arrays import Arrays

_BLUE, _RED, _GREEN, _GRAY = "#0072B2", "#D55E00", "#009E73", "#777777"


def draw(config: Metrics, arrays: Arrays) -> Figure:
    """Return four panels."""
    figure = Figure(figsize=(13.5, 4.2))
    panels: Any = figure.subplots(1, 4, width_ratios=[1, 1.15, 1, 1])
    _own_norms(panels[0], arrays)
    _population(panels[1], arrays)
    _by_kappa(
        panels[2], arrays, "kappa", {"to_whitened": "whitened margin", "to_vertex": "vertex"},
        "More samples than features",
    )  # fmt: skip
    _by_kappa(
        panels[3], arrays, "wide_kappa",
        {"to_interpolant": "interpolant of labels", "to_single": "one sample alone"},
        "Fewer samples than features",
    )  # fmt: skip
    figure.suptitle("The metric is the bias")
    return figure


def _own_norms(axes: Any, arrays: Arrays) -> None:
    names = {
        "kfac": "K-FAC",
        "class_kfac": "K-FAC,\nclasses",
        "diagonal": "diagonal\nFisher",
        "frozen": "population\nFisher to ℓ2",
    }
    for k, key in enumerate(names):
        values = np.maximum(arrays[key], 1e-6)
        color = _RED if key == "frozen" else _BLUE
        spread = np.linspace(-0.18, 0.18, len(values))
        axes.plot(k + spread, values, "o", color=color, ms=4, alpha=0.8)
    axes.set_xticks(range(len(names)), names.values(), fontsize=7.5)
    axes.set(yscale="log", ylabel="degrees to the margin in its norm")
    axes.set_title("Each data set is a dot")


def _population(axes: Any, arrays: Arrays) -> None:
    lengths = np.array(arrays.coordinates["length"])
    for k, turned in enumerate(arrays["turned"]):
        axes.plot(lengths, turned, color=_RED, lw=1, alpha=0.6, label=None if k else "flow")
        axes.plot(
            lengths, arrays["expected_turn"][k], color="black", lw=0.8, ls=":",
            label=None if k else "(π²/3) r⁻³ tan∠(−∇L, β)",
        )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlabel="length of the path", ylabel="dθ/dr")
    axes.legend(loc="lower left")
    axes.set_title("The population Fisher freezes")


def _by_kappa(axes: Any, arrays: Arrays, axis: str, names: dict[str, str], title: str) -> None:
    kappas = arrays.coordinates[axis]
    for (key, name), color, mark in zip(names.items(), (_GREEN, _RED), "os", strict=True):
        values = np.maximum(arrays[key], 1e-4)
        for row in values:
            axes.plot(kappas, row, color=color, lw=0.6, alpha=0.35)
        axes.plot(kappas, np.median(values, 0), color=color, marker=mark, lw=2, label=f"to {name}")
    axes.axvline(1, color=_GRAY, lw=0.8, ls="--")
    axes.set(yscale="log", xlabel="κ of the metric (p(1 − p))^κ", ylabel="degrees")
    axes.legend(fontsize=7.5, loc="center left" if axis == "kappa" else "center right")
    axes.set_title(title)
