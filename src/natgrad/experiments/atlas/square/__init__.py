"""Square loss: damping does not change the limit of diagonal networks, and metrics do."""
