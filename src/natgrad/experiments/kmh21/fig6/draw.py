"""The picture of Figure 6."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.kmh21._separable.panels import (
    bars,
    coefficients,
    curves,
    dodged,
    letter,
    logits,
)
from natgrad.experiments.kmh21.fig6.config import Fig6
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK, label_ticks, look


def draw(config: Fig6, arrays: Arrays) -> Figure:
    """Return four panels: accuracy, comparison of depths, logits and coefficients."""
    figure = Figure(figsize=(12.0, 6.6))
    grid = figure.add_gridspec(3, 3, width_ratios=[1.5, 1.0, 1.1])
    main = figure.add_subplot(grid[:2, 0])
    curves(main, arrays, config.dim, thin=True)
    for scale, values, dash in zip(
        config.gaussian_scales, arrays["gaussian"], ((3, 2), (1, 1.5), (5, 1)), strict=False
    ):
        shape = look("EGD L=5") | {"linestyle": (0, dash), "marker": "", "linewidth": 1.0}
        label = f"EGD L=5, Gaussian {scale:g}"
        bars(main, dodged(config.observations, -2, 7), values.T, label=label, **shape)
    main.set_ylim(0.42, 1.02)
    main.set_xlabel("")
    main.legend(
        loc="lower right", fontsize=6.8, ncols=2, columnspacing=0.6, labelspacing=0.3,
        handlelength=1.6,
    )  # fmt: skip
    letter(main, "A", "Depth helps from a constant start")
    below = figure.add_subplot(grid[2, 0])
    _depths(below, config, arrays)
    for axes in (main, below):
        axes.set_xscale("log")
        axes.set_xlim(0.9 * min(config.observations), 1.12 * max(config.observations))
        label_ticks(
            axes.xaxis, [n for n in (20, 30, 50, 100, 200, 300) if n in config.observations]
        )
    middle = figure.add_subplot(grid[:, 1])
    logits(middle, arrays)
    letter(middle, "C", "NGD interpolates: $s_n(t)/t → y_n$")
    strips = [figure.add_subplot(grid[i, 2]) for i in range(3)]
    coefficients(strips, arrays, max(config.observations))
    letter(strips[0], "D", f"{config.ones} true features, and noise")
    figure.suptitle(f"Sparse classification, D = {config.dim}, {config.ones} ones, mean ± s.d.")
    return figure


def _depths(axes: Axes, config: Fig6, arrays: Arrays) -> None:
    """Draw depths 2, 4 and 5 minus depth 3 per data set: panel A does not separate them."""
    names, accuracy = arrays.coordinates["method"], arrays["accuracy"]
    three = accuracy[names.index("EGD L=3")]
    for index, depth in enumerate((2, 3, 4, 5)):
        gap = 100 * (accuracy[names.index(f"EGD L={depth}")] - three)
        x = dodged(config.observations, index, 4, by=0.02)
        bars(axes, x, gap.T, label=f"L = {depth}", **look(f"EGD L={depth}"))
    axes.axvline(config.dim, color=INK, linewidth=0.8, linestyle=(0, (1, 2)))
    axes.set(xlabel="number of samples N", ylabel="accuracy minus\nthat of L = 3, %")
    low, high = axes.get_ylim()
    axes.set_ylim(low - 0.3 * (high - low), high)  # room for the legend
    axes.legend(loc="lower right", fontsize=7.2, ncols=4, columnspacing=1.0)
    letter(axes, "B", "Depths compared on the same data sets")
