"""[KMH21] Figure 3: which entries move when one is observed."""
