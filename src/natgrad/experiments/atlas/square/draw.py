"""Distances between ends of flows, and risks of two interpolants."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from natgrad.experiments.atlas.square.cells import CASES, METRICS
from natgrad.experiments.atlas.square.config import Square
from natgrad.lab.arrays import Arrays

_COLORS = ("#0072B2", "#009E73", "#D55E00")


def draw(config: Square, arrays: Arrays) -> Figure:
    """Return ends of flows on the left, risks on the right."""
    figure = Figure(figsize=(10.5, 4.2))
    left, right = figure.subplots(1, 2)
    groups: dict[str, Any] = {
        f"diagonal, L = {depth}": arrays["diagonal"][k] for k, depth in enumerate(config.depths)
    }
    groups["matrix product"] = arrays["product"]
    for k, (name, gaps) in enumerate(groups.items()):
        for column in range(len(config.dampings)):
            values = np.maximum(gaps[:, column], 1e-16)
            place = column + 0.22 * (k - 1) + np.linspace(-0.06, 0.06, len(values))
            label = name if column == 0 else None
            left.plot(place, values, "o", ms=3.5, alpha=0.75, color=_COLORS[k], label=label)
    left.axhline(1e-8, color="#777777", lw=0.8, ls="--")
    left.set_xticks(range(len(config.dampings)), [f"{d:g}" for d in config.dampings])
    left.set(yscale="log", xlabel="damping λ", ylabel="distance to the end of gradient flow")
    left.legend(loc="center", fontsize=7.5)
    left.set_title("Natural flow ends where gradient flow does")
    mean = arrays["risk"].mean(-1)
    error = 1.96 * arrays["risk"].std(-1, ddof=1) / np.sqrt(arrays["risk"].shape[-1])
    for k, (name, color) in enumerate(zip(METRICS, ("#4A9FD0", "#D55E00"), strict=True)):
        beside = np.arange(len(CASES)) + 0.4 * (k - 0.5)
        right.bar(beside, mean[:, k], 0.38, yerr=error[:, k], color=color, label=name, capsize=2)
    right.set_xticks(range(len(CASES)), [case.replace(", ", ",\n") for case in CASES])
    right.set(ylabel="excess risk")
    right.legend()
    right.set_title("Which metric predicts better depends on the data")
    figure.suptitle("Square loss: what damping keeps, and what the metric decides")
    return figure
