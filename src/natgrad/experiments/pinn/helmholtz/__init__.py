"""Helmholtz, k = 4π, 2-64-1: every seed, below 1e-5."""
