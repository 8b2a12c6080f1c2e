"""The picture of Figure 1C."""

from functools import partial

from natgrad.experiments.blh18._linear import draw as linear
from natgrad.experiments.blh18.fig1c.config import PANEL

draw = partial(linear.draw, PANEL)
