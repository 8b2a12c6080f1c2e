"""The picture of Figure 6."""

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from natgrad.experiments.kmh21.separable_panels import coefficients, curves, letter, logits
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import band, label_ticks, look

if TYPE_CHECKING:
    from natgrad.experiments.kmh21.fig6 import Fig6


def picture(config: "Fig6", arrays: Arrays) -> Figure:
    """Return three panels: accuracy, with the Gaussian starts, logits and coefficients."""
    figure = Figure(figsize=(12.0, 4.6))
    grid = figure.add_gridspec(3, 3, width_ratios=[1.5, 1.0, 1.1])
    main = figure.add_subplot(grid[:, 0])
    curves(main, arrays, config.dim)
    shape = look("EGD L=5") | {"linestyle": (0, (3, 2))}
    gaussian = arrays["gaussian"].T
    band(main, config.gaussian, gaussian, label="EGD L=5, Gaussian start", **shape)
    main.set_ylim(0.48, 1.01)
    main.set_xscale("log")
    label_ticks(main.xaxis, [n for n in (20, 30, 50, 100, 200, 300) if n in config.observations])
    main.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), fontsize=7.5, ncols=4)
    letter(main, "A", "Depth helps, unless it starts at random")
    middle = figure.add_subplot(grid[:, 1])
    logits(middle, arrays)
    letter(middle, "B", "NGD interpolates: $s_n(t)/t → y_n$")
    strips = [figure.add_subplot(grid[i, 2]) for i in range(3)]
    coefficients(strips, arrays, max(config.observations))
    letter(strips[0], "C", f"{config.ones} true features, and noise")
    figure.suptitle(f"Sparse classification, D = {config.dim}, {config.ones} ones, mean ± s.d.")
    return figure
