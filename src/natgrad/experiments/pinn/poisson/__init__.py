"""2-D Poisson, 2-32-1: every initialization, below 1e-5."""
