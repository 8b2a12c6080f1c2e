"""[KMH21] Figure 4: sparse classification with D = 1000, and what explains the paper's curves."""
