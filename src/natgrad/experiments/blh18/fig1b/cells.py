"""Cells of Figure 1B."""

from functools import partial

from natgrad.experiments.blh18._linear import cells
from natgrad.experiments.blh18.fig1b.config import PANEL

compute = partial(cells.compute, PANEL)
