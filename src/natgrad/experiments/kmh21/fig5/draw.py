"""The picture of Figure 5: the paper's three panels, then ours."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.kmh21.fig5.config import Fig5
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, PALETTE, band, label_ticks, look

_UV = {"color": "#009E73", "marker": "*", "linestyle": (0, (4, 1.5))}
_SHARE: dict[str, Any] = {
    "color": "#D55E00",
    "marker": ".",
    "linestyle": (0, (1, 1.5)),
    "linewidth": 1.0,
}
_SAMPLE = {2: ("#E69F00", "s"), 3: ("#A65E00", "^")}
_SCALES = ("#8CC6DE", "#2072B2", "#0B1F47")
_NOTE: dict[str, Any] = {"fontsize": 7.5, "color": INK}


def draw(config: Fig5, arrays: Arrays) -> Figure:
    """Return four rows of panels."""
    figure = Figure(figsize=(11.0, 12.6))
    rows: Any = figure.subfigures(4, 1, height_ratios=[1.2, 1.0, 1.0, 0.85])
    first, second, third, fourth = rows
    left, middle, right = first.subplots(1, 3)
    _ranks(left, arrays)
    _losses(middle, arrays)
    _starts(right, arrays)
    handles, labels = middle.get_legend_handles_labels()
    first.legend(handles, labels, loc="outside lower center", ncols=4, columnspacing=1.6)
    depths = arrays.coordinates["depth"]
    for k, axes in enumerate(np.atleast_1d(second.subplots(1, len(depths), sharey=True))):
        _scales(axes, arrays, k)
    left, middle, right = third.subplots(1, 3)
    _sample(left, arrays)
    _damping(middle, arrays)
    _products(right, arrays)
    many = len(arrays.coordinates["dynamics_depth"])
    for k, axes in enumerate(np.atleast_1d(fourth.subplots(1, many, sharey=True))):
        _dynamics(axes, arrays, k)
    figure.suptitle(
        "Depth lets EGD complete a matrix. NGD with the Fisher over all entries never does;\n"
        "with the Fisher over the observed entries, or damped, it does"
    )
    return figure


def _against_n(axes: Axes, arrays: Arrays) -> None:
    axes.set_xlabel("observed entries N")
    n = arrays.coordinates["n"]
    label_ticks(axes.xaxis, n if len(n) < 5 else n[::2])


def _ranks(axes: Axes, arrays: Arrays) -> None:
    n = arrays.coordinates["n"]
    band(axes, n, arrays["direct_rank"].T, center="median", **look("EGD L=1"))
    band(axes, n, arrays["ngd_rank"][-1].T, center="median", **_dashed(look("NGD")))
    for k, depth in enumerate(arrays.coordinates["depth"]):
        band(axes, n, arrays["egd_rank"][k, 0].T, center="median", **look(f"EGD L={depth}"))
    band(axes, n, arrays["nuclear_rank"].T, center="median", **look("min nuclear norm"))
    band(axes, n, arrays["uv_rank"].T, center="median", **_UV)
    _shares(axes, arrays, "rank")
    axes.set_ylabel("effective rank")
    axes.set_yscale("log")
    ticks = [t for t in (2, 5, 10, 20, 50, 100) if t <= 1.5 * arrays["direct_rank"].max()]
    label_ticks(axes.yaxis, ticks)
    axes.set_title("Depth finds low rank, NGD does not")
    _against_n(axes, arrays)


def _dashed(style: dict[str, Any]) -> dict[str, Any]:
    """Return the style with gaps that show the line below."""
    return style | {"linestyle": (0, (3, 3))}


def _losses(axes: Axes, arrays: Arrays) -> None:
    n, alpha = arrays.coordinates["n"], arrays.coordinates["scale"][0]
    band(axes, n, arrays["direct_test"].T, center="median", label="EGD L=1", **look("EGD L=1"))
    band(
        axes,
        n,
        arrays["ngd_test"][-1].T,
        center="median",
        label="NGD (all entries)",
        **_dashed(look("NGD")),
    )
    for k, depth in enumerate(arrays.coordinates["depth"]):
        name = f"EGD L={depth}"
        band(axes, n, arrays["egd_test"][k, 0].T, center="median", label=name, **look(name))
    name = "min nuclear norm"
    band(axes, n, arrays["nuclear_test"].T, center="median", label=name, **look(name))
    band(axes, n, arrays["uv_test"].T, center="median", label="UV of true rank", **_UV)
    _shares(axes, arrays, "test", label="NGD, equal share, orthogonal start")
    _loss_axis(axes)
    axes.set_ylim(bottom=max(1e-6, axes.get_ylim()[0]))  # exact recovery is off the axis
    axes.set_title(f"Test loss, scale α = {alpha:g}")
    _against_n(axes, arrays)


def _shares(axes: Axes, arrays: Arrays, key: str, **options: Any) -> None:
    """Draw equal-share NGD from orthogonal factors, without runs that lost a rank."""
    values = np.where(arrays["share_singular"][1, -1], np.nan, arrays[f"share_{key}"][1, -1])
    kept = ~np.isnan(values).all(axis=-1)
    x = np.asarray(arrays.coordinates["few_n"])[kept]
    axes.plot(x, np.nanmedian(values[kept], axis=-1), **_SHARE, **options)


def _legend_below(axes: Axes, room: float) -> None:
    """Put the legend below the curves, where the axis is extended for it."""
    axes.set_ylim(bottom=axes.get_ylim()[0] * room)
    axes.legend(loc="lower left", fontsize=7.0)


def _loss_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.set_ylabel("test loss")
    axes.axhline(1.0, color=INK, linewidth=0.7, linestyle=":", zorder=1)


def _starts(axes: Axes, arrays: Arrays) -> None:
    """Draw the test loss by the depth of the initial product, training depth by color."""
    n, labels = arrays.coordinates["few_n"], arrays.coordinates["collapsed"]
    dashes = ["-", (0, (4, 1.5)), (0, (1, 1.2))]
    seen: dict[str, int] = {}
    for k, label in enumerate(labels):
        depth = label.split(",")[0]
        order = seen.get(depth, 0)
        seen[depth] = order + 1
        style = look(f"EGD {depth.replace(' ', '')}") | {"linestyle": dashes[order % 3]}
        band(axes, n, arrays["init_test"][k].T, center="median", label=label, **style)
    _loss_axis(axes)
    axes.set_title("Deeper starts matter little")
    axes.set_xlabel("observed entries N")
    label_ticks(axes.xaxis, n)
    _legend_below(axes, 1e-3)


def _scales(axes: Axes, arrays: Arrays, k: int) -> None:
    """Draw the test loss of one depth for every scale; crosses where runs were cut short."""
    n, depth = arrays.coordinates["n"], arrays.coordinates["depth"][k]
    cut = False
    for j, alpha in enumerate(arrays.coordinates["scale"]):
        losses, fits = arrays["egd_test"][k, j], arrays["egd_converged"][k, j].all(axis=-1)
        style = {"color": _SCALES[j % 3], "marker": "os^"[j % 3]}
        band(axes, n, losses.T, center="median", label=f"α = {alpha:g}", **style)
        short = ~fits
        if short.any():
            cut = True
            x, y = np.asarray(n)[short], np.median(losses, axis=-1)[short]
            axes.plot(x, y, "x", color="#CC3311", markersize=7, markeredgewidth=1.2, zorder=5)
    _loss_axis(axes)
    axes.set_title(f"EGD L = {depth}: smaller starts")
    _against_n(axes, arrays)
    if k:
        axes.set_ylabel("")
    if k == 0:
        axes.legend(loc="lower left")
    if cut:
        axes.text(
            0.97, 0.95, "× some runs cut short", transform=axes.transAxes, ha="right", va="top",
            **_NOTE,
        )  # fmt: skip


def _sample(axes: Axes, arrays: Arrays) -> None:
    """Draw NGD with the Fisher of the observed entries beside EGD and NGD over all entries."""
    n = arrays.coordinates["n"]
    band(
        axes, n, arrays["ngd_test"][-1].T, center="median", label="NGD, all entries", **look("NGD")
    )
    for k, depth in enumerate(arrays.coordinates["natural_depth"]):
        color, marker = _SAMPLE.get(depth, (PALETTE[k], "o"))
        losses, few = arrays["sample_test"][k].T, arrays.coordinates["few_n"]
        style = {"color": color, "marker": marker}
        band(axes, few, losses, center="median", label=f"NGD, observed, L={depth}", **style)
        if depth in arrays.coordinates["depth"]:
            egd = arrays["egd_test"][arrays.coordinates["depth"].index(depth), 0].T
            thin = look(f"EGD L={depth}") | {"linewidth": 0.9, "markersize": 2.5}
            band(axes, n, egd, center="median", label=f"EGD L={depth}", **thin)
    _loss_axis(axes)
    axes.set_title("Fisher over the observed entries: not trivial")
    _against_n(axes, arrays)
    _legend_below(axes, 1e-4)


def _damping(axes: Axes, arrays: Arrays) -> None:
    """Draw test loss relative to EGD L = 1 against damping: dots are settings, lines the best."""
    dampings = np.asarray(arrays.coordinates["damping"], dtype=float)
    positive = dampings[dampings > 0]
    x = np.where(dampings > 0, dampings, positive.min() / 10)
    ratio = np.median(arrays["grid_test"] / arrays["grid_trivial"], axis=-1)
    egd = np.median(arrays["grid_egd_test"] / arrays["grid_egd_zero"], axis=-1)
    top, beyond = 3.0, x.max() * 6
    for i, depth in enumerate(arrays.coordinates["grid_depth"]):
        for j, alpha in enumerate(arrays.coordinates["grid_scale"]):
            style = look(f"EGD L={depth}")
            color, marker = style["color"], style["marker"]
            shown = np.minimum(ratio[i, j], top)  # step, damping
            line = "-" if j == 0 else (0, (4, 1.5))
            label = f"L = {depth}, α = {alpha:g}"
            axes.plot(x, shown.min(axis=0), color=color, linestyle=line, label=label)
            for row, off in zip(shown, ratio[i, j] > top, strict=True):
                axes.plot(x[~off], row[~off], marker, color=color, markersize=2.5, linestyle="")
                axes.plot(x[off], row[off], 6, color=color, markersize=4, linestyle="")
            axes.plot(
                [beyond], [egd[i, j]], marker, color=color, markerfacecolor="white",
                markersize=5, clip_on=False,
            )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(top=top * 1.1)
    names = ["0" if d == 0 else f"{d:g}" for d in dampings]
    axes.set_xticks([*x, beyond], [*names, "EGD"])
    axes.set_xticks([], minor=True)
    axes.axhline(1.0, color=INK, linewidth=0.7, linestyle=":", zorder=1)
    axes.set_xlabel("damping λ of NGD (dots: step sizes)")
    axes.set_ylabel("test loss / that of EGD L=1")
    axes.set_title("Damping turns NGD into EGD")
    axes.axvline(beyond / 6**0.5, color="#BBBBBB", linewidth=0.7)
    _legend_below(axes, 0.1)


def _products(axes: Axes, arrays: Arrays) -> None:
    depths = arrays.coordinates["product_depth"]
    band(axes, depths, arrays["products_rank"], center="median", color=INK, marker="o")
    axes.set_xscale("log")
    axes.set_yscale("log")
    label_ticks(axes.xaxis, depths)
    ranks = np.median(arrays["products_rank"], axis=0)
    label_ticks(axes.yaxis, [t for t in (1, 2, 5, 10, 20, 50, 80) if t >= 0.8 * ranks.min()])
    axes.set_xlabel("number of Gaussian factors")
    axes.set_ylabel("effective rank of the product")
    axes.set_title("Random products start with low rank")


def _dynamics(axes: Axes, arrays: Arrays, k: int) -> None:
    """Draw the largest singular values of β against time, and those of the truth as markers."""
    depth = arrays.coordinates["dynamics_depth"][k]
    times, values = arrays["dynamics_times"][k], arrays["dynamics_values"][k]
    true = arrays["dynamics_truth"][k]
    rank = int((true > 1e-9 * true[0]).sum())
    for j in range(values.shape[1]):
        kept = j < rank
        color = look("EGD L=3")["color"] if kept else "#BBBBBB"
        axes.plot(times, values[:, j], color=color, linewidth=1.3 if kept else 0.9)
    end = times[-1]
    axes.plot([end] * rank, true[:rank], "<", color="#D55E00", markersize=4, clip_on=False)
    axes.set_xscale("log")
    axes.set_title(f"Singular values, EGF L = {depth}")
    axes.set_xlabel("time t")
    if depth > 1:
        drift = f"balance drifts\nby {arrays['dynamics_drift'][k]:.0e}"
        axes.text(0.04, 0.94, drift, transform=axes.transAxes, va="top", **_NOTE)
    if k == 0:
        axes.set_ylabel("singular value of β")
        axes.text(
            0.04, 0.94, "◂ truth", color="#D55E00", transform=axes.transAxes, va="top", fontsize=8
        )
