"""The figures of both papers, further ones, and the same methods for your own data."""

GROUPS: dict[str, tuple[str, ...]] = {
    "kmh21": ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6"),
    "blh18": ("fig1a", "fig1b", "fig1c", "fig1d"),
    "atlas": ("separators", "matrices", "damping", "metrics", "completion", "square"),
    "study": ("generalization",),
    "pinn": (
        "poisson",
        "heat",
        "helmholtz",
        "poisson5d",
        "burgers",
        "allen_cahn",
        "inverse",
    ),
}
"""The figures of each group; a figure is called `group/figure`."""

BY_DEFAULT = ("kmh21", "blh18")
"""Groups that `natgrad reproduce` runs if no figure is named: the papers' own."""

FIRST = "kmh21/fig2"
"""The figure that runs before all others: it surprises, and it takes seconds."""

FIGURES: dict[str, str] = {
    f"{group}/{figure}": f"natgrad.experiments.{group}.{figure}.config"
    for group, figures in GROUPS.items()
    for figure in figures
}
"""The module that holds the config, the presets and the `EXPERIMENT` of each figure."""
