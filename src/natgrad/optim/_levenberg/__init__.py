"""Damped least squares in a network's weights: what a closure returns, sides, solvers, the rule."""
