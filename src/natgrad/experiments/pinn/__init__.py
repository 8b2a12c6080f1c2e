"""Differential equations solved by networks, from many initializations."""
