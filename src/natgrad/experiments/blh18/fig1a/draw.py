"""The picture of Figure 1A."""

from functools import partial

from natgrad.experiments.blh18._linear import draw as linear
from natgrad.experiments.blh18.fig1a.config import PANEL

draw = partial(linear.draw, PANEL)
