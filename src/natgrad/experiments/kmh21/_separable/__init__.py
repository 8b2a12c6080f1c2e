"""What Figures 4 and 6 share: sparse classification."""
