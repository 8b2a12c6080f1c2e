"""5-D Poisson, 5-128-1: every seed, below 1e-5."""
