"""The picture of pinn/inverse."""

import numpy as np
from matplotlib.figure import Figure

from natgrad.experiments.pinn._equations.heat import CONDUCTIVITY
from natgrad.experiments.pinn.inverse.cells import error
from natgrad.experiments.pinn.inverse.config import InverseFigure
from natgrad.lab.arrays import Arrays
from natgrad.lab.figures import PALETTE


def draw(config: InverseFigure, arrays: Arrays) -> Figure:
    """Return errors of κ along the steps, and the errors under noise in units of the bound."""
    figure = Figure(figsize=(9.0, 3.5))
    left, right = figure.subplots(1, 2)
    for i, label in ((0, "exact data"), (1, f"noise {config.noise:g}")):
        for j, run in enumerate(arrays["kappa"][i]):
            relative = np.maximum(np.abs(run - CONDUCTIVITY) / CONDUCTIVITY, 1e-12)
            left.plot(
                np.arange(1, len(run) + 1), relative, color=PALETTE[i], alpha=0.6,
                label=label if j == 0 else None,
            )  # fmt: skip
    left.set(yscale="log", xlabel="step", ylabel="relative error of κ", title="error of κ")
    left.legend(loc="lower left")
    ratio = np.sort(error(arrays, 1) / arrays["bound"][1])
    right.axvspan(-1, 1, color="#EEEEEE")
    right.plot(ratio, (np.arange(len(ratio)) + 0.5) / len(ratio), "o", color=PALETTE[1])
    grid = np.linspace(-3.2, 3.2, 200)
    normal = np.cumsum(np.exp(-(grid**2) / 2))
    right.plot(grid, normal / normal[-1], color="black", linewidth=1.0, label="efficient estimate")
    right.set(
        xlabel="error of κ / Cramér–Rao bound", ylabel="share of the seeds",
        title="with noise: as good as any estimate can be",
    )  # fmt: skip
    right.legend(loc="upper left")
    figure.suptitle("The coefficient of a heat equation, found from data")
    return figure
