"""The picture of Figure 4: the paper's figure, the causes of its curves, and further results."""

import math
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.kmh21._separable.panels import (
    coefficients,
    curves,
    letter,
    logits,
    percent,
)
from natgrad.experiments.kmh21.fig4.claims._explanations import lead_left
from natgrad.experiments.kmh21.fig4.config import Fig4
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, band, label_ticks, look

_DEEP = ("#F0A868", "#D55E00", "#9A3F00", "#4F1F00")  # NGD at L = 1 … 4
_LIMITS = (("ℓ2 max margin", "EGD L=1"), ("ℓ1 max margin", "EGD L=2"), ("NGD", "NGD"))


def draw(config: Fig4, arrays: Arrays) -> Figure:
    """Return ten panels in three rows."""
    figure = Figure(figsize=(12.6, 11.0))
    rows: Any = figure.subfigures(3, 1, height_ratios=[1.2, 1.0, 1.0])
    grid = rows[0].add_gridspec(3, 3, width_ratios=[1.25, 1.0, 1.1])
    main = rows[0].add_subplot(grid[:, 0])
    curves(main, arrays, config.dim)
    main.legend(loc="lower right", fontsize=7.5, handlelength=2.0, labelspacing=0.35)
    letter(main, "A", "Depth helps EGD; NGD dips at N = D")
    middle = rows[0].add_subplot(grid[:, 1])
    logits(middle, arrays)
    letter(middle, "B", "NGD interpolates: $s_n(t)/t → y_n$")
    strips = [rows[0].add_subplot(grid[i, 2]) for i in range(3)]
    coefficients(strips, arrays, max(config.observations))
    letter(strips[0], "C", f"{config.ones} true features, and noise")
    for axes, panel in zip(rows[1].subplots(1, 3), (_gaussian, _overshoot, _stopping), strict=True):
        panel(axes, config, arrays)
    last = (_deep, _supports, _scales, _cost)
    for axes, panel in zip(rows[2].subplots(1, 4), last, strict=True):
        panel(axes, config, arrays)
    rows[0].suptitle(
        f"The paper's figure: D = {config.dim}, {config.ones} ones, mean ± s.d.", **_HEAD
    )
    rows[1].suptitle(
        "What its curves depend on: the scale of a random start, and the stopping time", **_HEAD
    )
    rows[2].suptitle(
        "Beyond the paper: generalized inverse, support vectors, scale of a constant start, cost",
        **_HEAD,
    )
    return figure


_HEAD: dict[str, Any] = {"x": 0.01, "ha": "left", "fontsize": 11.5}


def _ramp(name: str, count: int) -> list[Any]:
    """Return colors from light to dark; the darkest is for the most samples."""
    return [colormaps[name](v) for v in np.linspace(0.35, 1.0, count)]


def _gaussian(axes: Axes, config: Fig4, arrays: Arrays) -> None:
    """Draw the share of its lead over L = 1 that L = 4 keeps from Gaussian factors."""
    scales, left = np.array(config.gaussian_scales), lead_left(config, arrays)
    colors = _ramp("Blues", len(config.observations))
    shifts = np.linspace(0.94, 1.06, len(config.observations))  # bars side by side
    for i, n in enumerate(config.observations):
        values = left[:, i]
        mean = values.mean(axis=1)
        bars = np.stack([mean - values.min(axis=1), values.max(axis=1) - mean])
        axes.errorbar(
            scales * shifts[i], mean, yerr=bars, color=colors[i], marker="D", markersize=3.5,
            linewidth=1.2, elinewidth=0.7, label=f"N = {n}",
        )  # fmt: skip
    for at in (0.0, 1.0):
        axes.axhline(at, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.set_xscale("log")
    label_ticks(axes.xaxis, config.gaussian_scales)
    axes.set_yticks([0, 0.5, 1], ["0\nlike\nL = 1", "½", "1\nconstant\nstart"])
    axes.set_ylim(min(-0.3, float(left.min()) - 0.05), 1.75)
    axes.set(xlabel="s.d. of the initial factors", ylabel="lead of L = 4 over L = 1 left")
    axes.legend(loc="upper left", ncols=3, fontsize=7.2, columnspacing=1.0)
    letter(axes, "D", "EGD L = 4 from Gaussian factors (mean, range)")


def _overshoot(axes: Axes, config: Fig4, arrays: Arrays) -> None:
    """Draw accuracy of NGD from random coefficients, by scale and N ≤ D."""
    observations = arrays.coordinates["up_to_n"]
    axes.set_xscale("log")
    for i, (n, color) in enumerate(
        zip(observations, _ramp("Oranges", len(observations)), strict=True)
    ):
        scales = config.overshoot_scales
        band(axes, scales, arrays["overshoot_descent"][i], color=color, marker="P",
             label=f"Euler steps, N = {n}")  # fmt: skip
        flow = arrays["overshoot_flow"][i].mean(axis=0)
        axes.plot(scales, flow, color=color, linewidth=1.0, linestyle=(0, (2, 2)))
    axes.plot([], [], color=INK, linewidth=1.0, linestyle=(0, (2, 2)), label="flow, same N")
    percent(axes, 0.46, 0.86)
    label_ticks(axes.xaxis, config.overshoot_scales)
    axes.set(xlabel="s.d. of the initial coefficients", ylabel="test accuracy")
    axes.legend(loc="upper left", ncols=2, fontsize=7.2, columnspacing=1.0)
    letter(axes, "E", "NGD from random coefficients, N ≤ D")


def _stopping(axes: Axes, config: Fig4, arrays: Arrays) -> None:
    """Draw accuracy against time."""
    times = arrays.coordinates["late_time"]
    axes.set_xscale("log")
    for index, depth in enumerate(config.depths):
        shape = look(f"EGD L={depth}") | {"marker": ""}
        band(axes, times, arrays["late"][index], label=f"EGD L={depth}", **shape)
    axes.axhline(
        arrays["l1_accuracy"].mean(), **(look("ℓ1 max margin") | {"marker": ""}),
        label="ℓ1 max margin",
    )  # fmt: skip
    axes.axhline(
        arrays["l2_accuracy"].mean(), **(look("ℓ2 max margin") | {"marker": ""}),
        label="ℓ2 max margin",
    )  # fmt: skip
    axes.axvline(config.until, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
    percent(axes, 0.48, 1.01)
    axes.set(xlabel="time t", ylabel="test accuracy")
    axes.legend(loc="lower right", ncols=2, fontsize=7.2)
    letter(axes, "F", f"Longer is not better (N = {config.few})")


def _deep(axes: Axes, config: Fig4, arrays: Arrays) -> None:
    """Draw natural gradient flow in deep networks."""
    times = arrays.coordinates["depth_time"]
    axes.set_xscale("log")
    for index, depth in enumerate(arrays.coordinates["natural_depth"]):
        band(
            axes, times, arrays["deep"][index], color=_DEEP[index], marker="PXos"[index],
            label=f"NGD L={depth}",
        )  # fmt: skip
    axes.set(xlabel=f"time t, N = {config.few}", ylabel="test accuracy")
    low, high = arrays["deep"].min(), arrays["deep"].max()
    axes.set_ylim(low - 0.02, high + 0.045)
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.legend(loc="upper left", ncols=2, fontsize=7.5)
    letter(axes, "G", "β of NGD depends on depth")


def _supports(axes: Axes, config: Fig4, arrays: Arrays) -> None:
    """Draw the share of samples that are support vectors."""
    ratios = arrays.coordinates["ratio"]
    for index, (name, like) in enumerate(_LIMITS):
        text = {"NGD": "NGD's limit"}.get(name, name)
        band(axes, ratios, arrays["supports"][index].T, label=text, **look(like))
    for at, text in ((1.0, "D = N"), (math.log(config.support_n), "D = N log N")):
        axes.axvline(at, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
        axes.annotate(text, (at, 0.02), xytext=(3, 0), textcoords="offset points", fontsize=8)
    axes.set_xscale("log")
    label_ticks(axes.xaxis, [0.5, 1, 2, 4, 8])
    axes.set(xlabel="D/N", ylabel="support vectors / N", ylim=(0, 1.05))
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.1), fontsize=7.5)
    letter(axes, "H", "NGD: all support if D ≥ N")


def _scales(axes: Axes, config: Fig4, arrays: Arrays) -> None:
    """Draw accuracy against the initial scale."""
    axes.set_xscale("log")
    for index, depth in enumerate(arrays.coordinates["alpha_depth"]):
        name = f"EGD L={depth}"
        band(axes, config.alphas, arrays["alpha_accuracy"][index].T, label=name, **look(name))
    names, few = arrays.coordinates["method"], config.observations.index(config.few)
    shallow = arrays["accuracy"][names.index("EGD L=1"), few].mean()
    axes.axhline(shallow, **(look("EGD L=1") | {"marker": ""}), label="EGD L=1")
    for x, text, side in ((0.03, "← rich", "left"), (0.97, "kernel →", "right")):
        axes.annotate(text, (x, 0.03), xycoords="axes fraction", ha=side, style="italic")
    percent(axes, 0.58, 1.01)
    axes.set(
        xlabel=f"initial scale α, N = {config.few}",
        ylabel=f"test accuracy at loss {1 / config.until:g}",
    )
    axes.legend(loc="upper right", fontsize=7.5)
    letter(axes, "I", "Large starts undo depth")


def _cost(axes: Axes, config: Fig4, arrays: Arrays) -> None:
    """Draw the CPU time of the paper's loop and of our flows."""
    observations = arrays.coordinates["n"]
    loop = 2e6 * arrays["step_seconds"].mean(axis=0)
    axes.set_yscale("log")
    axes.plot(observations, loop, color=INK, marker="o", label="2 million steps")
    for index, depth in enumerate(config.depths):
        name = f"EGD L={depth}"
        axes.plot(
            observations, arrays["cell_seconds"][index].mean(axis=1), label=f"{name}, flow",
            **look(name),
        )  # fmt: skip
    natural = arrays["cell_seconds"][arrays.coordinates["method"].index("NGD")].mean(axis=1)
    axes.plot(observations, natural, label="NGD", **look("NGD"))
    axes.set(xlabel="number of samples N", ylabel="CPU seconds per data set")
    axes.set_ylim(top=30 * float(np.max(loop)))
    axes.legend(loc="upper left", ncols=2, fontsize=7.2)
    letter(axes, "J", "Seconds, not hours")
