"""Gradient flow of ReLU networks."""
