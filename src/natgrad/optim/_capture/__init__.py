"""What the optimizer sees of a training step."""
