"""`natgrad compare`: the instruments of [KMH21] §3 for your own table of two classes."""

from natgrad.experiments.compare.comparison import Comparison, compare

__all__ = ["Comparison", "compare"]
