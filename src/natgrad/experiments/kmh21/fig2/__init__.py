"""[KMH21] Figure 2: separators in the plane, one per depth for EGD, a single one for NGD."""
