"""Errors on unobserved entries against steps, one dot per seed."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from natgrad.experiments.atlas.completion.config import Completion
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import PALETTE

_MARKS = "osD^vP"


def draw(config: Completion, arrays: Arrays) -> Figure:
    """Return a panel for each depth."""
    figure = Figure(figsize=(4.6 * len(config.depths) + 1.5, 4.4))
    panels: Any = figure.subplots(1, len(config.depths), sharey=True, squeeze=False)[0]
    colors = ("#000000", *PALETTE[:2], "#CC79A7", "#E69F00", "#777777")
    for k, axes in enumerate(panels):
        for row, name in enumerate(arrays.coordinates["method"]):
            steps, test = arrays["steps"][row, k], np.clip(arrays["test"][row, k], 1e-6, 1e4)
            axes.plot(steps, test, _MARKS[row], color=colors[row], ms=5, alpha=0.75, label=name)
        axes.axhline(1, color="#999999", lw=0.8, ls="--")
        axes.set(xscale="log", yscale="log", xlabel="steps")
        axes.set_title(f"L = {config.depths[k]}")
    panels[0].set_ylabel("error on unobserved entries")
    panels[0].annotate(
        "predicting zeros", (0.03, 1), (0, 3), xycoords=("axes fraction", "data"),
        textcoords="offset points", fontsize=7.5, color="#777777",
    )  # fmt: skip
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3)
    figure.suptitle("Completion: the bias of depth survives natural steps over observed entries")
    return figure
