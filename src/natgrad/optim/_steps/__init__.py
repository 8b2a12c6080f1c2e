"""What becomes of a direction: lengths that are learned or measured, averages of the weights."""
