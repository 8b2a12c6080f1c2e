"""[BLH18] Figure 1C: a bottleneck of width two."""
