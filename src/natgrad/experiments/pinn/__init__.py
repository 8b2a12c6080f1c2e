"""Differential equations solved by networks, from every initialization."""
