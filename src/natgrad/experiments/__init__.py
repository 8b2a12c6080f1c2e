"""The figures of both papers, and the same instruments for your own data."""

from importlib import import_module

_FIGURES: tuple[str, ...] = ()


def load() -> None:
    """Make every figure known to the registry."""
    for module in _FIGURES:
        import_module(f"natgrad.experiments.{module}")
