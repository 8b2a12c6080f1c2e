"""[BLH18] Figure 1."""
