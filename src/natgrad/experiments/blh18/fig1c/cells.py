"""Cells of Figure 1C."""

from functools import partial

from natgrad.experiments.blh18._linear import cells
from natgrad.experiments.blh18.fig1c.config import PANEL

compute = partial(cells.compute, PANEL)
