"""[KMH21] Figure 5: matrix completion by depth, and by the natural gradient."""
