"""Damped least squares in a network's weights: closures, solvers, and the damping rule."""
