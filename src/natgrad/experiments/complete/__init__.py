"""`natgrad complete`: the instruments of [KMH21] §4 for your own incomplete matrix."""

from natgrad.experiments.complete.completed import Completed, complete

__all__ = ["Completed", "complete"]
