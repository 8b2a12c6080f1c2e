"""The picture of the atlas: paths of separators that end at certified stars."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from natgrad.experiments.atlas.separators.config import Own, Separators
from natgrad.experiments.atlas.separators.goals import KINDS
from natgrad.experiments.atlas.separators.methods import METHODS
from natgrad.experiments.atlas.separators.table import lines
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import INK

# A color and dashes for each path: no two look alike in gray or to a color-blind eye.
_LOOKS = {
    "coordinate descent": ("#009E73", "-"),
    "normalized gradient": ("#0072B2", "-"),
    "gradient flow": ("#0072B2", ":"),
    "sign descent": ("#D55E00", "-"),
    "Adam, β₂ = .95": ("#E69F00", "--"),
    "Adam, one sample": ("#8C6D1F", ":"),
    "K-FAC": ("#CC79A7", "-"),
    "diagonal Fisher": ("#777777", "-"),
    "natural gradient": ("#000000", "-"),
    "natural, λ = √loss": ("#000000", ":"),
    "natural, latent Wasserstein": ("#CC79A7", ":"),
    "gradient flow (L = 2)": ("#009E73", ":"),
}
_COLORS = {"reached": "#009E73", "approaching": "#56B4E9", "undecided": "#B5B5B5"}


def draw(config: Separators | Own, arrays: Arrays) -> Figure:
    """Return the map of paths on the left, and how near every optimizer is on the right."""
    figure = Figure(figsize=(12.5, 6.8))
    parts: Any = figure.subfigures(1, 2, width_ratios=[1.4, 1])
    _map(parts[0].subplots(), arrays)
    _shares(parts[1].subplots(), arrays)
    handles, names = parts[0].axes[0].get_legend_handles_labels()
    parts[0].legend(handles, names, loc="outside lower center", ncols=3, fontsize=8.5)
    one = KINDS[int(arrays["kind"].max())] != "separable"
    figure.suptitle(
        "Each optimizer on the way to the optimum of its loss"
        if one
        else "Every optimizer picks its own separator of the same data"
    )
    return figure


def _map(axes: Axes, arrays: Arrays) -> None:
    """Draw directions in the plane that shows the limits of the first data set best."""
    names = np.array(arrays.coordinates["star"])
    known = np.isfinite(arrays["stars"]).all(1)
    stars, names = arrays["stars"][known], names[known]
    center = stars.mean(0)
    paths = dict(zip(METHODS, arrays["path"], strict=True))
    spread = stars if len(stars) > 2 else np.concatenate([stars, *paths.values()])
    _, _, plane = np.linalg.svd(spread - center, full_matrices=False)

    def flat(rows: Any) -> Any:
        return np.degrees((rows - center) @ plane[:2].T)

    if len(plane) < 2:  # one feature: there is no map
        axes.set_title("One feature has one separator", fontsize=10.5)
        return
    for name, (color, dashes) in _LOOKS.items():
        path = flat(paths[name])
        fade = np.linspace(0.25, 1, len(path) - 1)
        for k in range(len(path) - 1):  # paths grow darker toward their ends
            axes.plot(*path[k : k + 2].T, color=color, ls=dashes, lw=1.9, alpha=fade[k])
        axes.plot([], [], color=color, ls=dashes, lw=1.9, label=name)
        axes.plot(*path[-1], "o", color=color, ms=5, zorder=4)
    places = flat(stars)
    axes.plot(*places.T, "*", color="#FFD400", ms=21, mec=INK, mew=0.9, ls="none", zorder=3)
    for name, place, up in zip(names, places, _sides(places), strict=True):
        axes.annotate(
            name, place, (0, 13 if up else -21), textcoords="offset points", fontsize=9.5,
            color=INK, ha="center", fontweight="bold",
            bbox={"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.75},
        )  # fmt: skip
    axes.margins(0.12)
    axes.set(xlabel="direction of the separator, degrees in the plane of the limits")
    axes.set_ylabel("degrees")
    axes.set_title("Paths of one data set; stars are certified limits", fontsize=10.5)


def _sides(places: Any) -> list[bool]:
    """Return whether each label goes above its star: away from its nearest neighbor."""
    found = []
    for k, place in enumerate(places):
        others = np.delete(places, k, axis=0)
        if not len(others):
            found.append(True)
            continue
        nearest = others[np.hypot(*(others - place).T).argmin()]
        found.append(bool(place[1] >= nearest[1]))
    return found


def _shares(axes: Axes, arrays: Arrays) -> None:
    """Draw how much of its own limit each optimizer has reached, with the verdict as color."""
    table = lines(arrays)[::-1]
    for row, line in enumerate(table):
        share = 0.0 if line.share is None else line.share
        axes.barh(row, share, color=_COLORS[line.verdict], height=0.72)
        told = f"{line.limit}  {share:.3f}" if line.limit else "no limit known"
        axes.text(0.02, row, told, va="center", fontsize=8, color=INK)
    labels = list(METHODS)[::-1]
    axes.set_yticks(range(len(table)), labels, fontsize=8)
    axes.set_xlim(0, 1)
    axes.tick_params(axis="y", length=0)
    axes.grid(False)
    for verdict, color in _COLORS.items():
        axes.plot([], [], "s", color=color, label=verdict)
    axes.legend(loc="upper center", bbox_to_anchor=(0.4, -0.08), ncols=3, fontsize=8.5)
    axes.set_title("Share of its limit reached", fontsize=10.5)
