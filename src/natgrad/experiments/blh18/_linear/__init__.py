"""Deep linear networks, the parts that Figures 1A, 1B and 1C share."""
