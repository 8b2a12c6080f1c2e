"""Angles to the ℓ2 margin along the paths, and the kinds of ends by exponent."""

from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.figure import Figure

from natgrad.experiments.atlas.damping.claims import DECIDED
from natgrad.experiments.atlas.damping.config import Damping
from natgrad.lab.arrays import Arrays

_KINDS = {
    "ℓ2 max margin": "#0072B2",
    "face between": "#56B4E9",
    "another vertex": "#E69F00",
    "vertex of undamped flow": "#D55E00",
    "undecided": "#B5B5B5",
}


def draw(config: Damping, arrays: Arrays) -> Figure:
    """Return one panel of paths, and one of ends for each λ₀."""
    figure = Figure(figsize=(13.0, 4.3))
    panels: Any = figure.subplots(1, 1 + len(config.scales), width_ratios=[1.5, 1, 1, 1])
    paths, *ends = panels
    middle = len(config.scales) // 2
    for k, power in enumerate(config.powers):
        color = colormaps["viridis"](0.05 + 0.85 * k / max(1, len(config.powers) - 1))
        along = np.maximum(arrays["along"][middle, k], 1e-4)
        paths.plot(arrays["lengths"], along, color=color, lw=1.9, label=f"a = {power:g}")
    paths.set(xscale="log", yscale="log", xlabel="length of the path", ylabel="degrees")
    paths.set_title(f"Angle to the ℓ2 margin, one data set, λ₀ = {config.scales[middle]:g}")
    paths.legend(ncols=2, fontsize=7.5, loc="lower left")
    kinds = _kinds(config, arrays)
    for k, axes in enumerate(ends):
        bottom = np.zeros(len(config.powers))
        for number, (name, paint) in enumerate(_KINDS.items()):
            share = (kinds[:, k] == number).mean(0)
            axes.bar(range(len(bottom)), share, bottom=bottom, color=paint, label=name, width=0.85)
            bottom += share
        axes.set_xticks(range(len(bottom)), [f"{a:g}" for a in config.powers])
        axes.set_title(f"λ₀ = {config.scales[k]:g}")
        axes.set(xlabel="exponent a", ylim=(0, 1))
        axes.grid(False)
    ends[0].set_ylabel("share of data sets")
    handles, names = ends[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=5)
    figure.suptitle("Where natural flow with damping λ₀Lᵃ ends")
    return figure


def _kinds(config: Damping, arrays: Arrays) -> Any:
    """Return the index of each end's kind in `_KINDS`."""
    margin = arrays["to_margin"] <= DECIDED
    vertex = arrays["tight"] >= config.dim
    found = np.where(vertex, 2, 1)
    found = np.where(vertex & (arrays["to_vertex"] <= DECIDED), 3, found)
    found = np.where(margin, 0, found)
    return np.where(arrays["to_face"] <= DECIDED, found, 4)
