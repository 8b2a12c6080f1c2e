"""`natgrad complete`: the methods of [KMH21] §4 on your own incomplete matrix.

`config` holds the options, `fit` fits the matrix, `result` summarizes it, `draw` draws it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.experiments.complete.fit import complete
    from natgrad.experiments.complete.result import Completed

__all__ = ["Completed", "complete"]

# Imported on first use, because the command line reads the options without torch.
_HOMES = {"complete": "fit", "Completed": "result"}


def __getattr__(name: str) -> Any:
    """Return a public name, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
