"""The solution to which each optimizer converges, with certificates."""
