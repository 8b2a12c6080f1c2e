"""The picture of `natgrad compare`."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, PALETTE, look

_LOOKS = {"limit of NGD": "NGD", "least squares": "ℓ2 max margin"}
_SHOWN = 40  # features in the panel of coefficients; the rest are in the arrays


def picture(arrays: Arrays) -> Figure:
    """Return accuracy with intervals, angles between separators, and their coefficients."""
    figure = Figure(figsize=(13.0, 4.6))
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.0, 1.05, 1.45])
    _accuracy(left, arrays)
    _angles(middle, arrays)
    _coefficients(right, arrays)
    low, high = (100 * f(arrays["accuracy"]) for f in (np.nanmin, np.nanmax))
    apart = float(np.nanmax(arrays["angle"]))
    figure.suptitle(
        f"Held-out accuracy from {low:.1f} to {high:.1f} %, separators up to {apart:.0f}° apart"
    )
    return figure


def plain(text: str, most: int = 24) -> str:
    r"""Return a user's name as matplotlib shows it: no formulas, not too long.

    Example:
        >>> print(plain("cost in $"))
        cost in \$
    """
    short = text if len(text) <= most else text[: most - 1] + "…"
    return short.replace("$", r"\$").replace("\n", " ")


def _color(method: str) -> str:
    try:
        return str(look(_LOOKS.get(method, method))["color"])
    except ValueError:  # a depth that has no color of its own
        return PALETTE[0]


def _accuracy(axes: Axes, arrays: Arrays) -> None:
    methods = arrays.coordinates["method"]
    for row, method in enumerate(methods):
        value = arrays["accuracy"][row]
        if np.isnan(value):
            axes.annotate(
                "none: not separable", (0.03, row), xycoords=("axes fraction", "data"),
                va="center", fontsize=7.5, style="italic", color="#777777",
            )  # fmt: skip
            continue
        low, high = arrays["accuracy_low"][row], arrays["accuracy_high"][row]
        axes.plot([low, high], [row, row], color=_color(method), linewidth=2.2, alpha=0.55)
        axes.plot(value, row, marker="o", markersize=6, color=_color(method))
        if "fold_accuracy" in arrays:
            folds = arrays["fold_accuracy"][row]
            axes.plot(folds, np.full_like(folds, row), "|", color=INK, markersize=5, alpha=0.5)
    axes.set_yticks(range(len(methods)), methods)
    axes.set_ylim(len(methods) - 0.5, -0.5)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set_xlabel("held-out accuracy, 95 % interval")
    axes.set_title("Accuracy")


def _angles(axes: Axes, arrays: Arrays) -> None:
    methods = arrays.coordinates["method"]
    angle = arrays["angle"]
    axes.imshow(angle, cmap="cividis_r", vmin=0, vmax=90)
    for (i, j), value in np.ndenumerate(angle):
        if np.isfinite(value):
            color = "white" if value > 45 else INK
            axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color=color)
    axes.set_xticks(range(len(methods)), methods, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(methods)), [""] * len(methods))
    axes.grid(visible=False)
    axes.set_title("Angles between separators, degrees")


def _coefficients(axes: Axes, arrays: Arrays) -> None:
    methods, names = arrays.coordinates["method"], arrays.coordinates["feature"]
    beta = arrays["coefficients"]
    weight = np.nanmax(np.abs(beta), axis=0)
    chosen = np.sort(np.argsort(-weight, kind="stable")[:_SHOWN])
    top = float(np.nanmax(np.abs(beta)))
    axes.imshow(beta[:, chosen], cmap="PuOr", vmin=-top, vmax=top, aspect="auto")
    axes.set_yticks(range(len(methods)), [""] * len(methods))
    labels = [plain(names[k]) for k in chosen]
    axes.set_xticks(range(len(chosen)), labels, rotation=90, fontsize=6.5)
    axes.grid(visible=False)
    largest = f", the {_SHOWN} largest of {len(names)}" if len(names) > _SHOWN else ""
    axes.set_title(f"Coefficients β / ‖β‖{largest} (orange −, purple +)")
