"""The figures of both papers, and the same instruments for your own data."""

from importlib import import_module

_FIGURES = (
    "kmh21.fig1",
    "kmh21.fig2",
    "kmh21.fig3",
    "kmh21.fig4",
    "kmh21.fig5",
    "kmh21.fig6",
    "blh18.fig1a",
    "blh18.fig1b",
    "blh18.fig1c",
    "blh18.fig1d",
)


def load() -> None:
    """Make every figure known to the registry."""
    for module in _FIGURES:
        import_module(f"natgrad.experiments.{module}")
