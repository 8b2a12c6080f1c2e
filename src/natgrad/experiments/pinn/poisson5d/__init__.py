"""5-D Poisson, 5-64-1: every seed, below 1e-5."""
