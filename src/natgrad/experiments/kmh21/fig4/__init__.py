"""[KMH21] Figure 4: sparse classification with D = 1000, and causes of the paper's curves."""
