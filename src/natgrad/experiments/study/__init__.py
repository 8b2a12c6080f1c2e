"""Does natural gradient descent generalize? Experiments that compare optimizers on fresh data."""
