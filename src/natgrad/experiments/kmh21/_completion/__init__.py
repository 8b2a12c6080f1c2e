"""Matrix completion: one problem, one method per cell."""
