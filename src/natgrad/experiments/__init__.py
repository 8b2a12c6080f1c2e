"""The figures of both papers, and the same methods for your own data."""

FIGURES: dict[str, str] = {
    f"{paper}/{figure}": f"natgrad.experiments.{paper}.{figure}.config"
    for paper, figures in {
        "kmh21": ("fig1", "fig2", "fig3", "fig4", "fig5", "fig6"),
        "blh18": ("fig1a", "fig1b", "fig1c", "fig1d"),
    }.items()
    for figure in figures
}
"""The module that holds the config, the presets and the `EXPERIMENT` of each figure."""
