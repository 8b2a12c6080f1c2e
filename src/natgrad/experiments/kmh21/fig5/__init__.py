"""[KMH21] Figure 5: matrix completion by depth, and what the natural gradient makes of it."""
