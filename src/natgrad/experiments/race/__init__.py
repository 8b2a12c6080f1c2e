"""`natgrad bench`: a race of NGD against the best tuned peers, in seconds to a target."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from natgrad.experiments.race.cells import RACE
    from natgrad.experiments.race.config import Race

__all__ = ["RACE", "Race"]

# Imported on first use, because the command line reads its options without torch.
_HOMES = {"RACE": "cells", "Race": "config"}


def __getattr__(name: str) -> Any:
    """Return a public name, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
