"""The picture of `natgrad compare`: what the separators are, and how good."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.compare._verdict import stopped_name, where
from natgrad.experiments.compare.config import KINDS
from natgrad.fits import PENALTIES
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, PALETTE, look

Floats = npt.NDArray[np.float64]

_EXTRA: dict[str, tuple[str, Any]] = {
    "limit of NGD": ("#8C3B00", (0, (1, 1.5))),
    "least squares": ("#009E73", (0, (3, 1, 1, 1))),
    "ℓ2 penalty": ("#7B5EA7", "-"),
    "ℓ1 penalty": ("#B39BD3", "-"),
}
_CLASSES = (
    "#D9A441", "#5B8DB8", "#7FB069", "#C06C84", "#8D8D8D", "#6C5B7B", "#E07A5F", "#2A9D8F",
    "#8B5E3C", "#B5B03C",
)  # fmt: skip
_MARKS = "os^Dv<>PX*"
_CROWDED = 4  # classes beyond which only the best method's boundaries are drawn
_FEATURES = 12  # in the panel of coefficients; the rest are in the arrays


def picture(arrays: Arrays) -> Figure:
    """Return six panels: separators, coefficients, stopping; accuracy, angles, calibration."""
    figure = Figure(figsize=(14.0, 9.0))
    axes = figure.subplots(2, 3, width_ratios=[1.15, 1.0, 1.1]).ravel()
    for place, draw in zip(axes, PANELS.values(), strict=True):
        draw(place, arrays)
    shares = 100 * np.concatenate([arrays["accuracy"], arrays["stop_accuracy"]])
    apart = float(np.nanmax(arrays["angle"]))
    kind = KINDS[int(arrays["kind"])].capitalize()
    figure.suptitle(
        f"{kind}: held-out accuracy from {np.nanmin(shares):.1f} to {np.nanmax(shares):.1f} %, "
        f"separators up to {apart:.0f}° apart"
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


def _look(method: str) -> dict[str, Any]:
    if method in _EXTRA:
        color, dashes = _EXTRA[method]
        return {"color": color, "linestyle": dashes}
    try:
        found = look(method)
    except ValueError:  # a depth that has no color of its own
        return {"color": PALETTE[0], "linestyle": "-"}
    return {"color": found["color"], "linestyle": found["linestyle"]}


def _separators(axes: Axes, arrays: Arrays) -> None:
    """Draw the rows in the two most telling directions, and where each separator cuts them."""
    rows, labels = arrays["plane_rows"], arrays["plane_label"]
    names = arrays.coordinates["class"]
    for k, name in enumerate(names):
        first, second = rows[labels == k].T
        axes.scatter(
            first, second, s=14, linewidths=0, alpha=0.75, color=_CLASSES[k % len(_CLASSES)],
            marker=_MARKS[k % len(_MARKS)], label=plain(name),
        )  # fmt: skip
    window = [_range(rows[:, k]) for k in (0, 1)]
    methods = arrays.coordinates["method"]
    shown = _distinct(arrays["plane_line"])
    if len(names) > _CROWDED:
        shown = {int(np.nanargmax(arrays["accuracy"])): 1}
    for first_of_them, many in shown.items():
        name = methods[first_of_them]
        text = name if many == 1 else f"{name} and {many - 1} more"
        _boundary(axes, arrays["plane_line"][first_of_them], window, name, text)
    axes.set(xlim=window[0], ylim=window[1])
    axes.set_xlabel(_words(arrays, 0, 3), fontsize=7.5)
    axes.set_ylabel(_words(arrays, 1, 2), fontsize=7.5)
    axes.legend(loc="best", fontsize=6.5, ncols=2, frameon=True, framealpha=0.7)
    axes.set_title("The rows in the two most telling directions")


def _distinct(lines: Floats) -> dict[int, int]:
    """Return which separators to draw, and how many look the same as each of them."""
    found: dict[int, int] = {}
    for k, line in enumerate(lines):
        if np.isnan(line).any():
            continue
        alike = [old for old in found if np.abs(line - lines[old]).max() < 0.01]
        if alike:
            found[alike[0]] += 1
        else:
            found[k] = 1
    return found


def _range(values: Floats) -> tuple[float, float]:
    low, high = np.quantile(values, [0.005, 0.995])  # without the farthest rows
    room = 0.08 * (high - low) or 1.0
    return low - room, high + room


def _boundary(
    axes: Axes, line: Floats, window: Sequence[tuple[float, float]], method: str, text: str
) -> None:
    """Draw where the predicted class changes, within the plane."""
    style = _look(method)
    s, t = np.meshgrid(*(np.linspace(*ends, 201) for ends in window))
    scores = line[:, 0, None, None] * s + line[:, 1, None, None] * t + line[:, 2, None, None]
    if len(scores) == 1:
        shown = [scores[0]]
    else:  # the lead of each class, zero where it begins to be predicted
        shown = [scores[k] - np.delete(scores, k, axis=0).max(axis=0) for k in range(len(scores))]
    for values in shown:
        if values.min() < 0 < values.max():
            axes.contour(
                s, t, values, levels=[0.0], colors=[style["color"]],
                linestyles=[style["linestyle"]], linewidths=1.4,
            )  # fmt: skip
    axes.plot([], [], label=text, linewidth=1.4, **style)


def _words(arrays: Arrays, axis: int, most: int) -> str:
    """Return a direction in words: its largest features with their weights."""
    direction = arrays["plane_axes"][axis]
    direction = direction / (np.linalg.norm(direction) or 1.0)
    names = arrays.coordinates["feature"][-len(direction) :]
    if not direction.any():
        return "(there is one feature)"
    order = np.argsort(-np.abs(direction), kind="stable")[:most]
    parts = [
        f"{direction[k]:+.2f} {plain(names[k], 18)}" for k in order if abs(direction[k]) > 0.05
    ]
    more = " …" if (np.abs(direction) > 0.05).sum() > most else ""
    return " ".join(parts).replace("-", "−") + more


def _coefficients(axes: Axes, arrays: Arrays) -> None:
    """Draw coefficients side by side for the features with the largest ones."""
    names, beta = arrays.coordinates["feature"], arrays["coefficients"]
    if beta.ndim == 3:
        return _coefficients_by_class(axes, arrays)
    shown = [
        (name, row, "o")
        for name, row in zip(arrays.coordinates["method"], beta, strict=True)
        if np.isfinite(row).all()
    ]
    if np.isnan(beta).any():  # the ends coincide, so what differs are the stopping points
        stopped = zip(arrays.coordinates["path"], arrays["stop_coefficients"], strict=True)
        shown += [(name, row, "*") for name, row in stopped if np.isfinite(row).all()]
    values = np.stack([row for _, row, _ in shown])
    chosen = np.argsort(-np.abs(values).max(axis=0), kind="stable")[:_FEATURES]
    for place, (name, row, mark) in enumerate(shown):
        height = np.arange(len(chosen)) + 0.7 * (place / max(len(shown) - 1, 1) - 0.5)
        size = 16 if mark == "o" else 34
        color = _look(name)["color"]
        axes.scatter(row[chosen], height, s=size, color=color, marker=mark, linewidths=0)
    for place, k in enumerate(chosen):
        ends = [values[:, k].min(), values[:, k].max()]
        axes.plot(ends, [place, place], color="#DDDDDD", linewidth=5, zorder=0)
    axes.axvline(0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(chosen)), [plain(names[k]) for k in chosen], fontsize=7.5)
    axes.set_ylim(len(chosen) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("β / ‖β‖, in the colors of the accuracies; ● at the end, ★ stopped")
    axes.set_title(f"Coefficients{_largest(len(chosen), len(names))}")
    return None


def _coefficients_by_class(axes: Axes, arrays: Arrays) -> None:
    """Draw the coefficients of the stopped path with the lowest loss, one column per class."""
    names, best = arrays.coordinates["feature"], int(np.argmin(arrays["stop_loss"]))
    beta = arrays["stop_coefficients"][best]
    chosen = np.argsort(-np.abs(beta).max(axis=0), kind="stable")[:_FEATURES]
    top = float(np.abs(beta).max())
    axes.imshow(beta[:, chosen].T, cmap="PuOr", vmin=-top, vmax=top, aspect="auto")
    classes = [plain(name, 12) for name in arrays.coordinates["class"]]
    axes.set_xticks(range(len(classes)), classes)
    axes.set_yticks(range(len(chosen)), [plain(names[k]) for k in chosen], fontsize=7.5)
    axes.grid(visible=False)
    name = stopped_name(arrays.coordinates["path"][best])
    axes.set_xlabel("classes; orange −, purple +")
    axes.set_title(f"Coefficients of {name}")


def _largest(shown: int, many: int) -> str:
    return f", the {shown} largest of {many}" if shown < many else ""


def _stopping(axes: Axes, arrays: Arrays) -> None:
    """Draw held-out accuracy along each path, with its stopping point."""
    for k, name in enumerate(arrays.coordinates["path"]):
        dial, accuracy = arrays["path_dial"][k], arrays["path_accuracy"][k]
        stop = int(arrays["stop_step"][k])
        style = _look(name)
        axes.plot(dial, accuracy, **style, label=f"{name}: {where(name, dial[stop])}")
        axes.plot(
            dial[stop], accuracy[stop], marker="*", markersize=11, color=style["color"],
            markeredgecolor="white", zorder=5,
        )  # fmt: skip
    _levels(axes.axhline, arrays)
    axes.set_xscale("log")
    flows = [k for k, name in enumerate(arrays.coordinates["path"]) if name not in PENALTIES]
    top, low = float(arrays["path_accuracy"].max()), float(arrays["path_accuracy"][flows].min())
    axes.set_ylim(low - 0.05 * (top - low) - 1e-3, top + 0.1 * (top - low) + 1e-3)
    digits = 1 if top - low < 0.045 else 0
    axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.{digits}f} %")
    axes.set_xlabel("time t, or 1/λ of a penalty; ★ lowest held-out loss")
    axes.legend(loc="lower right", fontsize=6.5, frameon=True, framealpha=0.8)
    axes.set_title("Held-out accuracy along each path")


def _levels(line: Callable[..., Any], arrays: Arrays) -> None:
    """Draw the accuracy of the most common class, and of the best function of the features."""
    dashes: dict[str, Any] = {"color": "#999999", "linewidth": 1.0, "linestyle": (0, (4, 3))}
    line(float(arrays["baseline"]), **dashes)
    if float(arrays["twin_ceiling"]) < 1:
        line(float(arrays["twin_ceiling"]), **dashes)


def _accuracy(axes: Axes, arrays: Arrays) -> None:
    """Draw accuracy with intervals: every method at its end, and every stopped path."""
    methods, paths = arrays.coordinates["method"], arrays.coordinates["path"]
    rows = [(name, "accuracy", k) for k, name in enumerate(methods)]
    rows += [(name, "stop_accuracy", k) for k, name in enumerate(paths)]
    for row, (name, key, k) in enumerate(rows):
        value, color = float(arrays[key][k]), _look(name)["color"]
        if np.isnan(value):
            axes.annotate(
                "none: not separable", (0.03, row), xycoords=("axes fraction", "data"),
                va="center", fontsize=7.5, style="italic", color="#777777",
            )  # fmt: skip
            continue
        ends = [arrays[f"{key}_low"][k], arrays[f"{key}_high"][k]]
        axes.plot(ends, [row, row], color=color, linewidth=2.2, alpha=0.55)
        stopped = key == "stop_accuracy"
        axes.plot(value, row, marker="*" if stopped else "o", ms=9 if stopped else 6, color=color)
        if "fold_accuracy" in arrays and not stopped:
            folds = arrays["fold_accuracy"][k]
            axes.plot(folds, np.full_like(folds, row), "|", color=INK, markersize=5, alpha=0.5)
    _levels(axes.axvline, arrays)
    axes.set_yticks(range(len(rows)), [*methods, *map(stopped_name, paths)], fontsize=7.5)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axhline(len(methods) - 0.5, color="#BBBBBB", linewidth=0.8)
    low = float(min(np.nanmin(arrays["accuracy_low"]), arrays["stop_accuracy_low"].min()))
    high = float(max(np.nanmax(arrays["accuracy_high"]), arrays["stop_accuracy_high"].max()))
    room = 0.05 * (high - low)
    axes.set_xlim(low - room, high + room)
    digits = 1 if high - low < 0.035 else 0
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.{digits}f} %")
    axes.set_xlabel("held-out accuracy, 95 % interval; | folds")
    axes.set_title("Accuracy at the end ● and stopped ★")


def _angles(axes: Axes, arrays: Arrays) -> None:
    methods = arrays.coordinates["method"]
    angle = arrays["angle"]
    axes.imshow(angle, cmap="cividis_r", vmin=0, vmax=90, aspect="auto")
    for (i, j), value in np.ndenumerate(angle):
        if np.isfinite(value):
            color = "white" if value > 45 else INK
            axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=7, color=color)
    axes.set_xticks(range(len(methods)), methods, rotation=60, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(methods)), methods, fontsize=7.5)
    axes.grid(visible=False)
    axes.set_title("Angles between separators, degrees")


def _calibration(axes: Axes, arrays: Arrays) -> None:
    """Draw how often predictions are right against their probability, stopped and at the end."""
    names = arrays.coordinates["path"]
    flows = [k for k, name in enumerate(names) if name not in PENALTIES]
    best = min(flows, key=lambda k: float(arrays["stop_loss"][k]))
    worst = max(flows, key=lambda k: float(arrays["calibration_error"][k, 1]))
    penalty = min(
        (k for k, name in enumerate(names) if name in PENALTIES),
        key=lambda k: float(arrays["stop_loss"][k]),
    )
    low = 1.0
    for k, when in dict.fromkeys([(best, 0), (best, 1), (worst, 1), (penalty, 0)]):
        told, seen = arrays["calibration_told"][k, when], arrays["calibration_seen"][k, when]
        text = stopped_name(names[k]) if when == 0 else f"{names[k]} at its end"
        off = 100 * float(arrays["calibration_error"][k, when])
        axes.plot(
            told, seen, marker="*" if when == 0 else "o", color=_look(names[k])["color"],
            linestyle="-" if when == 0 else (0, (2, 1.5)), label=f"{text}: off by {off:.1f} points",
        )  # fmt: skip
        low = min(low, float(np.nanmin(told)), float(np.nanmin(seen)))
    low = max(0.0, low - 0.03)
    axes.plot([low, 1], [low, 1], color="#999999", linewidth=1.0, linestyle=(0, (4, 3)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axes.set(xlabel="probability of the class predicted", ylabel="share of held-out rows right")
    axes.legend(loc="best", fontsize=6.5, frameon=True, framealpha=0.8)
    axes.set_title("Calibration: are probabilities right?")


PANELS: dict[str, Callable[[Axes, Arrays], None]] = {
    "separators": _separators,
    "coefficients": _coefficients,
    "stopping": _stopping,
    "accuracy": _accuracy,
    "angles": _angles,
    "calibration": _calibration,
}
"""Functions that draw one panel each, by name."""
