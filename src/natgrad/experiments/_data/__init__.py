"""Data of single figures and races: clothes, the text behind `help()`, scikit-learn's tables."""
