"""The picture of Figure 3."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.kmh21.fig3.claims import off_entry
from natgrad.experiments.kmh21.fig3.config import Fig3
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK

_METHODS = ("egf", "egd", "ngf", "ngd")


def draw(config: Fig3, arrays: Arrays) -> Figure:
    """Return a map for each method (across) and depth (down), all on one scale."""
    depths = arrays.coordinates["depth"]
    titles = {
        "egf": "EGF\ntangent kernel",
        "egd": f"EGD\none step, η = {config.euclidean_step:g}",
        "ngf": "NGF\nnatural kernel",
        "ngd": f"NGD\none step, η = {config.natural_step:g}",
    }
    figure = Figure(figsize=(7.6, 1.78 * len(depths) + 0.8))
    grid = figure.subplots(len(depths), len(_METHODS), squeeze=False)
    image = None
    for row, depth in enumerate(depths):
        for column, method in enumerate(_METHODS):
            axes = grid[row, column]
            image = _map(axes, arrays[method][row, 0])
            if row == 0:
                axes.set_title(titles[method], loc="center")
            if column == 0:
                where = {"rotation": 0, "ha": "right", "va": "center"}
                axes.set_ylabel(f"L = {depth}", fontweight="bold", **where)
    assert image is not None
    bar = figure.colorbar(image, ax=grid, shrink=0.5, aspect=28, pad=0.02)
    bar.set_label("movement, relative to the observed entry")
    bar.outline.set_visible(False)
    figure.set_layout_engine("constrained", h_pad=0.02, w_pad=0.03, hspace=0.0)
    figure.suptitle(
        "What one observation moves in a matrix: from depth 2 on the Euclidean gradient\n"
        "moves other entries too, the natural gradient only the observed one"
    )
    return figure


def _map(axes: Axes, response: Any) -> Any:
    """Draw one response, divided by that of the observed entry."""
    size = response.shape[-1]
    middle = size // 2
    shown = response / response[middle, middle]
    image = axes.imshow(shown, cmap="RdBu_r", vmin=-1, vmax=1, interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(True)
        spine.set_color("#BBBBBB")
    rest = float(off_entry(response[None])[0])
    text = "others do not move" if rest < 1e-8 else f"others move up to {rest:.2f}"
    axes.set_xlabel(text, fontsize=7.5, color=INK, labelpad=3)
    return image
