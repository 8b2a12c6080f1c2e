"""Claims of Figure 1C, and our choices."""

from functools import partial

from natgrad.experiments.blh18._linear import claims as linear
from natgrad.experiments.blh18.fig1c.config import PANEL

claims = partial(linear.claims, PANEL)
departures = partial(linear.departures, PANEL)
