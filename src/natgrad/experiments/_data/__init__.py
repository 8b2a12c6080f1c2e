"""Data for the race: pictures of clothes, the text of `help()`, scikit-learn's tables."""
