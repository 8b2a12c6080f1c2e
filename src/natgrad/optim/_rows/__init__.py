"""Rows of a Jacobian: recorded through every pass that a residual makes, kept as factors."""
