"""`natgrad compare`: the methods of [KMH21] §3 on your own table of classes.

`config` holds the options, `fit` fits the separators, `result` summarizes them, `draw` draws them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.experiments.compare.fit import compare
    from natgrad.experiments.compare.result import Comparison

__all__ = ["Comparison", "compare"]

# Imported on first use, because the command line reads the options without torch.
_HOMES = {"compare": "fit", "Comparison": "result"}


def __getattr__(name: str) -> Any:
    """Return a public name, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
