"""[BLH18] Figure 1A: sixteen square layers."""
