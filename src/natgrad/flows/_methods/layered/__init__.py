"""Gradients of layered models in NumPy."""
