"""The picture of Figures 1A, 1B and 1C."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.blh18._linear.claims import CLOSE, Curves, predicted
from natgrad.experiments.blh18._linear.config import DeepLinear, Panel
from natgrad.experiments.blh18._linear.race import BEST, DEFAULT, PUBLISHED
from natgrad.lab import figures
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, PALETTE

_DASHED = (0, (4, 1.5))
LOOKS: dict[str, dict[str, Any]] = {
    "SGD": {"color": figures.look("SGD")["color"], "linestyle": "-"},
    "momentum": {"color": PALETTE[2], "linestyle": "-"},
    "momentum, M = 100": {"color": PALETTE[2], "linestyle": _DASHED},
    "Adam": {"color": PALETTE[3], "linestyle": "-"},
    "Adam, M = 100": {"color": PALETTE[3], "linestyle": _DASHED},
    PUBLISHED: {"color": figures.look("NGD")["color"], "linestyle": "-", "linewidth": 2.0},
    DEFAULT: {"color": PALETTE[4], "linestyle": _DASHED, "linewidth": 1.6},
    BEST: {"color": "#7A0F0F", "linestyle": "-", "linewidth": 2.6},
}
LABELS = {
    "SGD": "SGD, M = 20",
    "momentum": "momentum, M = 20",
    "Adam": "Adam, M = 20",
    PUBLISHED: "NGD, eq. 20 as published",
    DEFAULT: "NGD, measured lengths",
    BEST: "NGD for linear networks",
}


def draw(panel: Panel, config: DeepLinear, arrays: Arrays) -> Figure:
    """Return test error against examples and seconds, and the decay without noise."""
    curves = Curves(config, arrays)
    figure, (left, middle, right) = figures.panels(3, width=3.75, height=3.5)
    _race(left, curves, arrays["test"], config.noise, by_seconds=False)
    _race(middle, curves, arrays["test"], config.noise, by_seconds=True)
    left.set(title="In passes over the data", ylabel="squared test error per output")
    left.set_xlabel("passes")
    middle.set(title="In seconds", xscale="log", xlabel="CPU seconds of training")
    _decay(right, panel, config, arrays["excess"])
    figures.legend(figure, 5)
    figure.suptitle(_headline(panel, curves))
    return figure


def _headline(panel: Panel, curves: Curves) -> str:
    best, published = (float(curves.passes_until(m).max()) for m in (BEST, PUBLISHED))
    words = {
        "A": "sixteen square linear layers",
        "B": "sixteen linear layers, wide in the middle",
        "C": "twelve linear layers with a bottleneck of two",
    }[panel.letter]
    if not np.isfinite([best, published]).all():
        return f"1{panel.letter}, {words}: decrease to the noise floor"
    return (
        f"1{panel.letter}, {words}: natural gradients reach the noise floor in "
        f"{best:.2g} (ours) and {published:.2g} passes (published)"
    )


def _race(axes: Axes, curves: Curves, test: Any, noise: float, *, by_seconds: bool) -> None:
    top = 3 * float(np.median(test[:, 0, 0]))
    for index, name in enumerate(curves.names):
        errors = np.where(test[:, index] > top, np.nan, test[:, index])
        x = np.median(curves.spent[:, index], axis=0) if by_seconds else curves.passes
        first = 1 if by_seconds else 0  # a log axis cannot show the start, at 0 s
        label = LABELS.get(name, name)
        front = 4 if name in (PUBLISHED, BEST) else 3
        shape = LOOKS[name] | {"zorder": front, "label": label}
        figures.band(axes, x[first:], errors[:, first:], center="median", **shape)
        if name in (PUBLISHED, BEST):
            _arrival(axes, curves, name, by_seconds=by_seconds, noise=noise)
    axes.axhline(noise, color="#6B6B6B", linestyle=(0, (1, 1.5)), linewidth=1.4, zorder=2)
    axes.annotate(
        "noise floor", (0.01, noise), xycoords=("axes fraction", "data"), xytext=(0, -4),
        textcoords="offset points", va="top", color="#6B6B6B", fontsize=8,
    )  # fmt: skip
    axes.set(yscale="log", ylim=(0.25 * noise, top))


def _arrival(
    axes: Axes, curves: Curves, name: str, *, by_seconds: bool, noise: float
) -> None:  # fmt: skip
    """Mark where the median seed arrives."""
    until = curves.seconds_until(name) if by_seconds else curves.passes_until(name)
    where = float(np.median(until))
    if np.isfinite(where):
        axes.plot(
            [where], [CLOSE * noise], marker="o", color=LOOKS[name]["color"], markersize=5.5,
            markeredgecolor="white", linestyle="", zorder=6,
        )  # fmt: skip


def _decay(axes: Axes, panel: Panel, config: DeepLinear, excess: Any) -> None:
    """Draw the loss without noise and damping, and the predicted slopes."""
    times = panel.decay_rate * np.arange(excess.shape[1])
    relative = excess / excess[:, :1]
    color = figures.look("NGD")["color"]
    axes.plot(times, relative.T, color=color, linewidth=1.6, alpha=0.75)
    unit, moving = (rate / panel.decay_rate for rate in predicted(config, panel))
    half = len(times) // 2
    anchor = np.median(relative[:, half]) * np.exp(moving * times[half])
    if moving != unit:
        axes.plot(times, np.exp(-unit * times), color="#6B6B6B", linestyle=(0, (1, 1.5)))
        _note(axes, "the paper's e$^{-2t}$", (0.1, 0.22), "#6B6B6B")
    axes.plot(times, anchor * np.exp(-moving * times), color=INK, linestyle=_DASHED, linewidth=1.1)
    share = "2t" if moving == unit else "2t/L"
    _note(axes, f"predicted slope, e$^{{-{share}}}$\nin steps of α = {panel.decay_rate:g}",
          (0.55, 0.8), INK)  # fmt: skip
    axes.set(
        title="Without noise and damping, as predicted" if moving == unit
        else "Without noise, slower than e$^{-2t}$",
        yscale="log", xlabel="time t, α per step", ylabel="loss, in units of the first",
        ylim=(max(relative.min() / 3, 1e-12), max(4 * relative.max(), 4)),
    )  # fmt: skip


def _note(axes: Axes, text: str, where: tuple[float, float], color: str) -> None:
    axes.annotate(text, where, xycoords="axes fraction", color=color, fontsize=8)
