"""[BLH18] Figure 1, one folder per panel: config, cells, claims, draw."""
