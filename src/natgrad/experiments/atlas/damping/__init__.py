"""Damping that follows the loss: which face of the feasible set natural flow ends on."""
