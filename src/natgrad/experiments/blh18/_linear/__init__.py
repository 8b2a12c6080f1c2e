"""What Figures 1A, 1B and 1C share: deep linear networks."""
