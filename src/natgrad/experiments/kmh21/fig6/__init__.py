"""[KMH21] Figure 6: the sparse classification of Figure 4 in 50 dimensions."""
