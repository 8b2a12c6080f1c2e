"""Heat equation, 2-64-1: every seed, below 1e-5."""
