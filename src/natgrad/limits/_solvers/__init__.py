"""The programs behind the limits, and their solvers."""
