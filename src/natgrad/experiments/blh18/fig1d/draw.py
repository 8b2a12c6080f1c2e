"""The picture of Figure 1D."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.blh18._linear.draw import LOOKS
from natgrad.experiments.blh18.fig1d._autoencoder import DEFAULT, KNOWN, PUBLISHED
from natgrad.experiments.blh18.fig1d.claims import Curves
from natgrad.experiments.blh18.fig1d.config import Autoencoder
from natgrad.lab import figures
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import label_ticks

_LOOKS = LOOKS | {
    KNOWN: LOOKS[PUBLISHED] | {"linestyle": (0, (4, 1.5))},
    DEFAULT: {"color": "#7A0F0F", "linestyle": "-", "linewidth": 2.6},
}
_TICKS = (0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300)
_PCA = 0.01149  # of a test pixel: 50 principal components of MNIST


def draw(config: Autoencoder, arrays: Arrays) -> Figure:
    """Return test error against examples and seconds, and seconds from Glorot's weights."""
    curves, glorot = Curves(arrays), Curves(arrays, "glorot_")
    figure, (left, middle, right) = figures.panels(3, width=3.75, height=3.6, sharey=True)
    whole = bool(arrays["mnist"]) and config.examples is None
    _race(left, config, curves, whole, by_seconds=False)
    _race(middle, config, curves, whole, by_seconds=True)
    _race(right, config, glorot, whole, by_seconds=True)
    low = min(float(np.nanmin(found.test)) for found in (curves, glorot))
    high = 0.8 * float(np.nanmax(curves.test[:, 0, 0]))
    left.set(yscale="log", ylim=(0.9 * low, high), ylabel="squared test error per pixel")
    label_ticks(left.yaxis, [t for t in (0.01, 0.02, 0.04, 0.08) if 0.9 * low < t < high])
    left.set(title="In epochs", xlabel="epochs")
    middle.set(title="In seconds", xlabel="CPU seconds of training")
    right.set(title=f"From Glorot's weights, SGD at {config.glorot_rate:g}")
    right.set(xlabel="CPU seconds of training")
    figures.legend(figure, 5)
    figure.suptitle(_headline(config, curves))
    return figure


def _race(
    axes: Axes, config: Autoencoder, curves: Curves, whole: bool, *, by_seconds: bool
) -> None:
    labels = {
        "SGD": f"SGD, M = {config.batch}",
        "momentum": f"momentum, M = {config.large_batch}",
        "Adam": f"Adam, M = {config.large_batch}",
        PUBLISHED: "NGD, eq. 20 as published",
        KNOWN: "NGD, eq. 20, last error factor known",
        DEFAULT: "NGD, measured lengths",
    }
    epoch = np.nanmax(curves.examples[0]) / config.passes
    for index, name in enumerate(curves.names):
        points = slice(1, curves.points(name))
        errors = curves.test[:, index, points]
        errors = np.where(np.isfinite(errors), errors, np.nan)
        spent = np.median(curves.spent[:, index, points], axis=0)
        x = spent if by_seconds else curves.examples[index, points] / epoch
        shape = _LOOKS[name] | {"label": labels[name]}
        figures.band(axes, x, errors, center="median", **shape)
        if by_seconds:
            _meeting(axes, curves, name)
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    label_ticks(axes.xaxis, [t for t in _TICKS if low < t < high])
    _mark(axes, float(np.median(curves.mark)), config.passes)
    if whole:
        axes.axhline(_PCA, color="#6B6B6B", linestyle=(0, (1, 1.5)), linewidth=1.0, zorder=1)
        _note(axes, "50 principal components", _PCA)


def _headline(config: Autoencoder, curves: Curves) -> str:
    published, default = (float(curves.sooner(m).min()) for m in (PUBLISHED, DEFAULT))
    end = f"SGD's error after {config.passes} epochs"
    if min(published, default) == 0:  # some seed does not reach it
        return f"1D, autoencoder: decrease to {end}"
    lead = f"{published:.1f}× faster by eq. 20 as published, {default:.1f}× by NGD"
    return f"1D, autoencoder: {end}, {lead} (CPU time)"


def _meeting(axes: Axes, curves: Curves, name: str) -> None:
    """Mark where the median seed reaches SGD's last error."""
    where = float(np.median(curves.seconds(name)))
    if np.isfinite(where):
        axes.plot(
            [where], [np.median(curves.mark)], marker="o", color=_LOOKS[name]["color"],
            markersize=5.5, markeredgecolor="white", linestyle="", zorder=6,
        )  # fmt: skip


def _mark(axes: Axes, value: float, passes: int) -> None:
    color = LOOKS["SGD"]["color"]
    axes.axhline(value, color=color, linestyle=(0, (4, 2)), linewidth=1.0, zorder=1)
    axes.annotate(
        f"SGD after {passes} epochs", (0.01, value), xycoords=("axes fraction", "data"),
        xytext=(0, -4), textcoords="offset points", va="top", color=color, fontsize=8,
    )  # fmt: skip


def _note(axes: Axes, text: str, value: float) -> None:
    axes.annotate(
        text, (0.01, value), xycoords=("axes fraction", "data"), xytext=(0, 3),
        textcoords="offset points", va="bottom", color="#6B6B6B", fontsize=8,
    )  # fmt: skip
