"""Panels that Figures 4 and 6 share."""

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes

from natgrad.experiments.kmh21._separable.curves import NGD, POPULATION
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, band, look

CLASSES = {1.0: "#CC79A7", -1.0: "#009E73"}


def letter(axes: Axes, mark: str, title: str) -> None:
    """Set the title of a panel, with its letter."""
    axes.set_title(f"{mark}  {title}")


def percent(axes: Axes, low: float, high: float) -> None:
    """Show accuracies between two bounds as percentages."""
    ticks = [t for t in np.arange(0.5, 1.01, 0.1) if low <= t + 1e-9 <= high + 0.01]
    axes.set_yticks(ticks, [f"{100 * t:.0f} %" for t in ticks])
    axes.set_ylim(low, high)


def bars(axes: Axes, x: npt.ArrayLike, values: npt.NDArray[np.float64], **options: Any) -> None:
    """Draw the mean over seeds (rows of `values`), with thin bars of one standard deviation."""
    spread = values.std(axis=0, ddof=1) if len(values) > 1 else None
    axes.errorbar(x, values.mean(axis=0), yerr=spread, elinewidth=0.6, **options)


def dodged(x: npt.ArrayLike, index: int, count: int, by: float = 0.012) -> npt.NDArray[np.float64]:
    """Return positions shifted by a small factor, so that bars stand side by side."""
    return np.asarray(x, dtype=np.float64) * (1 + by * (index - (count - 1) / 2))


def curves(axes: Axes, arrays: Arrays, dim: int, *, thin: bool = False) -> None:
    """Draw accuracy against the number of samples, with bands or thin bars, which hide less."""
    observations, methods = arrays.coordinates["n"], arrays.coordinates["method"]
    for index, method in enumerate(methods):
        name = {NGD: "NGD, sample Fisher", POPULATION: "NGD, population Fisher"}.get(method, method)
        values, shape = arrays["accuracy"][index].T, look(method) | {"label": name}
        if thin:
            bars(axes, dodged(observations, index, len(methods)), values, **shape)
        else:
            band(axes, observations, values, **shape)
    axes.axvline(dim, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.annotate(
        "N = D", (dim, 0.485), xytext=(3, 2), textcoords="offset points", fontsize=8, color=INK
    )
    percent(axes, 0.48, 1.01)
    axes.set(xlabel="number of samples N", ylabel="test accuracy")


def logits(axes: Axes, arrays: Arrays) -> None:
    """Draw sₙ(t)/t, which tends to the label."""
    times, slopes, labels = (
        arrays.coordinates["logit_time"],
        arrays["logit_slopes"],
        arrays["logit_labels"],
    )
    shown = slice(0, 60)
    for value, color in CLASSES.items():
        chosen = slopes[:, labels == value][:, shown]
        lines = axes.semilogx(times, chosen, color=color, linewidth=0.6, alpha=0.6)
        lines[0].set_label(f"labels {'+' if value > 0 else '−'}1")
        axes.axhline(value, color=INK, linewidth=0.8, linestyle=(0, (2, 2)))
    axes.set(ylim=(-4.2, 4.2), xlabel="time t", ylabel="logits $s_n(t)/t$")
    handles = axes.legend(loc="upper right").get_lines()
    for handle in handles:
        handle.set(linewidth=2, alpha=1)


def coefficients(axes: Any, arrays: Arrays, n: int) -> None:
    """Draw learned coefficients of three methods, one below the other, as a share of ‖β‖."""
    names = arrays.coordinates["method"]
    features = np.array(arrays.coordinates["feature"])
    chosen = [names.index(method) for method in ("EGD L=2", "EGD L=1", NGD)]
    top = 1.12 * float(arrays["coefficients"][chosen].max())
    width = max(0.7, 100 / len(features))
    for panel, method in zip(axes, ("EGD L=2", "EGD L=1", NGD), strict=True):
        values = arrays["coefficients"][names.index(method)]
        panel.vlines(features, 0, values, color=look(method)["color"], linewidth=width)
        panel.axhline(0, color=INK, linewidth=0.5)
        panel.set(ylim=(-0.45 * top, top), yticks=[0], xlim=(0, len(features) + 1))
        panel.annotate(
            method, (0.99, 0.80), xycoords="axes fraction", ha="right", fontsize=8.5,
            fontweight="bold", color=look(method)["color"],
        )  # fmt: skip
        panel.grid(visible=False)
        panel.label_outer()
    axes[-1].set_xlabel(f"feature, N = {n}")
    axes[1].set_ylabel("coefficient β / ‖β‖")
