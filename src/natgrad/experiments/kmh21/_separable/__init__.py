"""Sparse classification, the parts that Figures 4 and 6 share."""
