"""Steps along a direction: learned or measured lengths, averages of the weights."""
