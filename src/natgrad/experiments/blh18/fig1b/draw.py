"""The picture of Figure 1B."""

from functools import partial

from natgrad.experiments.blh18._linear import draw as linear
from natgrad.experiments.blh18.fig1b.config import PANEL

draw = partial(linear.draw, PANEL)
