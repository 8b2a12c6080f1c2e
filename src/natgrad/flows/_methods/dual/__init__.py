"""Gradient flow of diagonal networks on logistic loss, in dual variables."""
