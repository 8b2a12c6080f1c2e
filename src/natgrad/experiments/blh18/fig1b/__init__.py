"""[BLH18] Figure 1B: sixteen layers that widen and narrow."""
